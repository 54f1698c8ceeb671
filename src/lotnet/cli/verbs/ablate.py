"""`lotnet ablate`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lotnet.arguments import Parser, nearest
from lotnet.certify_run import certify_split
from lotnet.cli.verbs.train import check, default_recipe, peek, with_recipe
from lotnet.config import RunConfig, add_settings, from_namespace, recipes
from lotnet.errors import InputError
from lotnet.files import atomic_write
from lotnet.load_model import load_model
from lotnet.paper import results
from lotnet.paper import tables as paper
from lotnet.paper.ablations import ABLATIONS, BASE, PAPER_RECIPE, Ablation
from lotnet.runs.data import image_spec, load_data
from lotnet.runs.directory import FORMAT, Run
from lotnet.training.evaluate import RADII
from lotnet.training.launch import launch, make_fabric
from lotnet.training.loop import train
from lotnet.training.signals import Interrupted

_COLUMNS = {"clean": "clean", "cert_36": "36/255", "cert_72": "72/255", "cert_108": "108/255"}


def main(arguments: list[str]) -> int:
    options = _read(arguments)
    console = Console(stderr=options.json)
    if options.name is None:
        _list(console, options.json)
        return 0
    if options.name not in ABLATIONS:
        raise InputError(f"there is no ablation {options.name}{nearest(options.name, ABLATIONS)}")
    ablation = ABLATIONS[options.name]
    configs = _plan(arguments, options.epochs, ablation)
    folder = Path(options.out or f"runs/ablation-{options.name}")
    runs = {variant: _run(folder / variant, config) for variant, config in configs.items()}
    rows: list[dict[str, Any]] = []
    for variant, run in runs.items():
        try:
            _finish(run, options.device, console)
        except Interrupted as stopped:
            console.print(f"{stopped}: saved. Continue with the same command.", soft_wrap=True)
            return 128 + stopped.signal
        rows.append(_row(variant, run, ablation))
        content = {"format": FORMAT, "ablation": options.name, "about": ablation.about, "variants": rows}
        atomic_write(folder / "ablation.json", json.dumps(content, indent=1).encode())
    if options.json:
        print(json.dumps({"written": str(folder / "ablation.json"), **content}))
        return 0
    _show(console, ablation, rows, next(iter(configs.values())))
    console.print(f"Written to {folder / 'ablation.json'}", soft_wrap=True, highlight=False)
    return 0


def _read(arguments: list[str]) -> Any:
    early = peek(arguments)
    return with_recipe(arguments, early.config or default_recipe(early.data or "digits"), _parser, add_settings)


def _parser(kinds: dict[str, str]) -> Parser:
    parser = Parser("lotnet ablate", "Train and certify the variants of an ablation, beside the paper's rows.")
    parser.add_argument("name", nargs="?", default=None, help=f"One of {', '.join(ABLATIONS)}; without it, a list.")
    parser.add_argument(
        "--config", type=str | None, default=None, help=f"What all variants share: one of {', '.join(recipes())}."
    )
    parser.add_argument("--out", type=str | None, default=None, help="Folder of runs; by default runs/ablation-NAME.")
    parser.add_argument("--epochs", type=int | None, default=None, help="Short for --trainer.epochs.")
    parser.add_common("device", "json")
    add_settings(parser, kinds)
    return parser


def _plan(arguments: list[str], epochs: int | None, ablation: Ablation) -> dict[str, RunConfig]:
    """The configuration of each variant: the recipe, the paper's base, what was asked for, and what is varied."""
    for argument in arguments:
        name = argument.split("=")[0].removeprefix("--")
        if name in ablation.varied():
            raise InputError(f"this ablation sets {name} itself: leave --{name} out, or run `lotnet train` with it")
    shared = [*paper.arguments(BASE), *arguments, *([] if epochs is None else ["--trainer.epochs", str(epochs)])]
    configs = {
        variant: from_namespace(_read([*shared, *paper.arguments(overrides)]))
        for variant, overrides in ablation.variants.items()
    }
    for config in configs.values():
        if config.trainer.devices * config.trainer.nodes > 1:
            raise InputError("an ablation trains in one process: leave trainer.devices and trainer.nodes at 1")
    dataset = load_data(config)
    for variant, config in configs.items():
        check(config, dataset)
        try:
            with torch.no_grad():  # one image, so that a variant that cannot run is known before the first is trained
                config.model.build(image_spec(dataset))(torch.zeros(1, *dataset.shape))
        except InputError as error:
            raise InputError(f"variant {variant} cannot work on {dataset.name}: {error}") from None
    return configs


def _run(path: Path, config: RunConfig) -> Run:
    """The variant's run, as far as it has come. One with other settings is neither continued nor replaced."""
    if not (path / "config.yaml").is_file():
        return Run.create(path, config)
    run = Run.open(path)
    if run.config != config:
        raise InputError(f"{path} was trained with other settings: choose another --out, or repeat them")
    return run


def _finish(run: Run, device: str, console: Console) -> None:
    """Train and certify as far as that is not done. Certificates are written last, so they say that all is."""
    if run.is_finished() and (run.path / "certificates.json").is_file():
        console.print(f"{run.path} is done already", soft_wrap=True, highlight=False)
        return
    fabric = make_fabric(run.config.trainer, device)
    launch(fabric)
    console.print(f"training {run.path} on {fabric.device}", soft_wrap=True, highlight=False)
    train(run, load_data(run.config), fabric, console)
    opened = load_model(str(run.path))
    certify_split(opened, "test", opened.split("test", run.config.limit), list(RADII), fabric.device, console)


def _row(variant: str, run: Run, ablation: Ablation) -> dict[str, Any]:
    """Ours in percent under the names of the paper's columns, and the paper's row where it has one."""
    result = results.collect(run.path, variant)
    shares = (result.summary["clean"], *result.certified())
    theirs = _paper_row(variant, ablation)
    return {
        "variant": variant,
        "settings": ablation.variants[variant],
        "run": str(run.path),
        "data": run.config.data.name,
        "epochs": result.epochs,
        "images": result.summary["images"],
        **{key: round(100 * share, 2) for key, share in zip(_COLUMNS, shares, strict=True)},
        "mean_radius": result.summary["mean_radius"]["float"],
        "train_seconds": result.train_seconds,
        "paper": None if theirs is None else asdict(theirs),
    }


def _paper_row(variant: str, ablation: Ablation) -> paper.Row | None:
    """Of the same variant in the paper's own setting, whatever ours was trained on."""
    if ablation.table is None:
        return None
    settings = paper.arguments(BASE | ablation.variants[variant])
    return results.row_like(from_namespace(_read(["--config", PAPER_RECIPE, *settings])), ablation.table)


def _list(console: Console, as_json: bool) -> None:
    if as_json:
        print(json.dumps({name: asdict(ablation) for name, ablation in ABLATIONS.items()}))
        return
    table = Table("ablation", "what it varies", "variants", title="lotnet ablate NAME", title_justify="left")
    for name, ablation in ABLATIONS.items():
        table.add_row(name, ablation.about, ", ".join(ablation.variants))
    console.print(table)


def _show(console: Console, ablation: Ablation, rows: list[dict[str, Any]], config: RunConfig) -> None:
    epochs = "1 epoch" if config.trainer.epochs == 1 else f"{config.trainer.epochs} epochs"
    title = f"% of {rows[0]['images']} test images of {config.data.name}, claim B, after {epochs}"
    table = Table("variant", title=title)
    for heading in (*_COLUMNS.values(), "mean radius"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row["variant"], *(f"{row[key]:.2f}" for key in _COLUMNS), f"{row['mean_radius']:.4f}")
        if row["paper"] is not None:
            table.add_row("  paper", *(f"{row['paper'][key]:.2f}" for key in _COLUMNS), "", style="dim")
    console.print(table)
    if any(row["paper"] for row in rows):
        console.print("The paper's are for CIFAR-10, LipConvnet-20 and 200 epochs.")
    else:
        console.print("The paper has no numbers for this one.")
