"""`lotnet selftrain`."""

import dataclasses
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning_fabric import Fabric
from rich.console import Console

from lotnet.arguments import Parser
from lotnet.certification.summary import Summary
from lotnet.certify_run import certify_split
from lotnet.cli.verbs.train import default_recipe, only, peek, with_recipe
from lotnet.config import add_settings, from_namespace, recipes
from lotnet.data import Dataset
from lotnet.errors import InputError
from lotnet.files import atomic_write, make_folder
from lotnet.load_model import LoadedModel, load_model
from lotnet.progress import progress_bar
from lotnet.runs.data import image_spec, limited, load_data
from lotnet.runs.directory import Run, fresh_path
from lotnet.selftraining import pseudolabels
from lotnet.selftraining import tables as selftrain_tables
from lotnet.selftraining.plan import FILE, STUDENT, TEACHER, Parts, Plan, SelfTrainingConfig, divide, from_elsewhere
from lotnet.selftraining.theorems import measure, statements
from lotnet.training.evaluate import RADII
from lotnet.training.launch import launch, make_fabric
from lotnet.training.loop import train
from lotnet.training.signals import Interrupted, stop_signals

FORMAT = 1
RESULT = "selftraining.json"


def main(arguments: list[str]) -> int:
    options, plan, recipe = read_arguments(arguments)
    console = Console(stderr=options.json)
    fabric = make_fabric(plan.training.trainer, options.device)
    if fabric.world_size > 1:
        raise InputError("self-training runs in one process: start it without torchrun")
    launch(fabric)
    dataset = load_data(plan.training)
    elsewhere = from_elsewhere(dataset, plan.selftraining.unlabelled, plan.training.limit)
    for seed in plan.seeds:  # what can be known to fail fails before there is a directory
        _check(plan, divide(dataset, plan.selftraining, seed, elsewhere))
    root = Path(options.resume) if options.resume else _make(options.out, recipe, plan)
    console.print(f"self-training {root} on {fabric.device}", soft_wrap=True, highlight=False)
    try:
        with _signals_stop():
            results = [_one_seed(plan, seed, root, dataset, elsewhere, fabric, console) for seed in plan.seeds]
            content = {"format": FORMAT, "seeds": results, **selftrain_tables.over_seeds(results)}
            atomic_write(root / RESULT, (json.dumps(content, indent=1) + "\n").encode())
    except Interrupted as stopped:
        console.print(f"{stopped}: saved. Continue with: lotnet selftrain --resume {root}", soft_wrap=True)
        return 128 + stopped.signal
    if options.json:
        print(json.dumps({"run": str(root), **content}))
    else:
        selftrain_tables.show(results, console)
        console.print(f"All numbers: {root / RESULT}", soft_wrap=True, highlight=False)
    return 0


def read_arguments(arguments: list[str]) -> tuple[Any, Plan, str]:
    """(options of the command, what to do, name of the recipe)."""
    early = peek(arguments)
    if early.resume is not None:
        options = _parser({"model": "lipconvnet", "loss": "cross-entropy"}).read(arguments)
        only(arguments, "--resume", "--device", "--json")
        return options, _open(Path(options.resume)), options.resume
    data = early.data or "digits"
    recipe = early.config or (f"{data}/selftrain" if f"{data}/selftrain" in recipes() else default_recipe(data))
    options = with_recipe(arguments, recipe, _parser, _add_settings)
    names = (item.name for item in dataclasses.fields(SelfTrainingConfig))
    settings = SelfTrainingConfig(**{name: options[name] for name in names})
    training = from_namespace(options)
    return options, Plan(training, settings, _seeds(options.seeds, training.seed)), recipe


def _parser(kinds: dict[str, str]) -> Parser:
    parser = Parser(
        "lotnet selftrain",
        "Train a teacher on labelled images, let it label others, train a student on both, and certify the two.",
    )
    parser.add_argument(
        "--config", type=str | None, default=None, help=f"A YAML file, or one of {', '.join(recipes())}."
    )
    parser.add_argument("--out", type=str | None, default=None, help="Run directory; by default runs/RECIPE-N.")
    parser.add_argument("--resume", type=str | None, default=None, help="Continue this directory.")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1], help="How many seeds, from --seed on, or which (two or more)."
    )
    parser.add_common("device", "json")
    _add_settings(parser, kinds)
    return parser


def _add_settings(parser: Parser, kinds: dict[str, str]) -> None:
    parser.add_fields(SelfTrainingConfig, "Self-training")
    add_settings(parser, kinds)


def _seeds(given: list[int], first: int) -> tuple[int, ...]:
    return tuple(range(first, first + given[0])) if len(given) == 1 else tuple(given)


def _open(root: Path) -> Plan:
    try:
        text = (root / FILE).read_text()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{root} holds no self-training: name a folder that `lotnet selftrain` made") from None
    return Plan.from_yaml(text, str(root / FILE))


def _make(out: str | None, recipe: str, plan: Plan) -> Path:
    root = Path(out) if out else fresh_path(recipe)
    if (root / FILE).is_file():
        raise InputError(f"{root} exists: continue it with --resume {root}, or choose another --out")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise InputError(f"{root} is there already, and no self-training: choose another --out")
    _write_plan(root, plan)
    return root


def _write_plan(folder: Path, plan: Plan) -> None:
    make_folder(folder, "choose another --out")
    atomic_write(folder / FILE, plan.to_yaml().encode())


def _check(plan: Plan, parts: Parts) -> None:
    plan.training.model.build(image_spec(parts.dataset))
    size = plan.training.trainer.batch_size
    if len(parts.labelled) < size:
        raise InputError(
            f"{len(parts.labelled)} labelled images do not fill one batch of {size}: lower trainer.batch_size or show "
            "more labels"
        )


def _one_seed(
    plan: Plan,
    seed: int,
    root: Path,
    dataset: Dataset,
    elsewhere: torch.Tensor | None,
    fabric: Fabric,
    console: Console,
) -> dict[str, Any]:
    """All stages of one seed; those that are finished are read, not repeated."""
    folder = plan.folder(root, seed)
    if folder != root and not (folder / FILE).is_file():
        _write_plan(folder, plan.alone(seed))
    if (folder / RESULT).is_file():
        result = _finished(folder / RESULT)
        console.print(f"{folder} is done already", soft_wrap=True, highlight=False)
        return result
    parts = divide(dataset, plan.selftraining, seed, elsewhere)
    _train(plan, TEACHER, seed, folder, parts.for_teacher(), parts, fabric, console)
    teacher = load_model(str(folder / TEACHER))
    found = _labels(teacher, plan, seed, folder, parts, fabric.device, console)
    _train(plan, STUDENT, seed, folder, parts.for_student(found.labels), parts, fabric, console)
    student = load_model(str(folder / STUDENT))
    with progress_bar(console) as progress:
        task = progress.add_task("certifying unlabelled images", total=len(parts.images))
        measured = measure(
            teacher.model.to(fabric.device),
            student.model.to(fabric.device),
            found,
            parts.images,
            parts.hidden,
            parts.held_out,
            plan.selftraining.ball,
            lambda n: progress.update(task, advance=n),
        )
    result = {
        "seed": seed,
        "images": {
            "labelled": len(parts.labelled),
            "held out": len(parts.held_out),
            "unlabelled": len(parts.images),
            "test": len(dataset.test),
        },
        "radii": list(RADII),
        TEACHER: _certified(teacher, plan, fabric.device, console),
        STUDENT: _certified(student, plan, fabric.device, console),
        "measured": dataclasses.asdict(measured) | {"shares": measured.shares()},
        "theorems": [statement.to_dict() for statement in statements(measured)],
    }
    content = {"format": FORMAT, "seeds": [result], **selftrain_tables.over_seeds([result])}
    atomic_write(folder / RESULT, (json.dumps(content, indent=1) + "\n").encode())
    return result


def _finished(path: Path) -> dict[str, Any]:
    """The result of a seed, as `_one_seed` wrote it."""
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError("another format")
        return content["seeds"][0]
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        raise InputError(f"{path} is damaged or of another version: delete it to have it made again") from None


def _train(
    plan: Plan, name: str, seed: int, folder: Path, dataset: Dataset, parts: Parts, fabric: Fabric, console: Console
) -> None:
    """To the end, from the last checkpoint if there is one."""
    config, path = plan.stage(name, seed), folder / name
    run = Run.open(path) if (path / "config.yaml").is_file() else Run.create(path, config)
    if run.config != config:
        raise InputError(f"{path} has other settings than {folder / FILE}: put config.yaml back, or start again")
    if run.is_finished():
        return
    images = f"{len(dataset.train)} images"
    console.print(f"training the {name} of seed {seed} on {images}", soft_wrap=True, highlight=False)
    train(run, dataset, fabric, console, parts.held_out)


def _labels(
    teacher: LoadedModel, plan: Plan, seed: int, folder: Path, parts: Parts, device: torch.device, console: Console
) -> pseudolabels.PseudoLabels:
    known = pseudolabels.read(folder, parts.images, teacher.model)
    if known is not None:
        return known
    if (folder / STUDENT).exists():  # labels are written before it begins, so it learned from others than come now
        raise InputError(f"{folder / STUDENT} was trained on pseudo-labels that are gone: delete it to start it again")
    console.print(f"labelling {parts.source}", soft_wrap=True, highlight=False)
    with progress_bar(console) as progress:
        task = progress.add_task("labelling", total=len(parts.images))
        found = pseudolabels.label(
            teacher.model.to(device),
            parts.images,
            len(parts.dataset.classes),
            progress=lambda n: progress.update(task, advance=n),
        )
    about = {
        "source": parts.source,
        "classes": list(parts.dataset.classes),
        "teacher": {"run": TEACHER, "config": plan.stage(TEACHER, seed).to_dict()},
    }
    pseudolabels.write(folder, found, parts.images, teacher.model, about)
    return found


def _certified(opened: LoadedModel, plan: Plan, device: torch.device, console: Console) -> dict[str, Any]:
    """Accuracies on the test images by claim B, from certificates.json where that is about the same."""
    test, checksum = opened.dataset().test, opened.model.settings["checksum"]
    if plan.training.limit is not None:
        test = limited(test, plan.training.limit)
    try:
        known = json.loads(opened.file("certificates.json").read_text())
        kept = known["summary"]
        same = (known["checksum"], known["split"], kept["radii"], kept["images"])
        if same == (checksum, "test", list(RADII), len(test)):
            return _figures(Summary(**kept), checksum)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or not one of ours: made anew
    summary, _, _ = certify_split(opened, "test", test, list(RADII), device, console)
    return _figures(summary, checksum)


def _figures(summary: Summary, checksum: str) -> dict[str, Any]:
    return {
        "checksum": checksum,
        "clean": summary.clean,
        "certified": summary.certified["float"],
        "mean_radius": summary.mean_radius["float"],
    }


@contextmanager
def _signals_stop() -> Iterator[None]:
    """A signal between training runs stops at once: what is finished is on the disk. Runs handle their own."""

    def stop(signum: int, _: FrameType | None) -> None:
        raise Interrupted(signum)

    before = {signum: signal.signal(signum, stop) for signum in stop_signals()}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
