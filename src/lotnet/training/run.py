"""Training as one call: from a recipe to a finished run directory."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from lotnet.certification.plain import RADII
from lotnet.config import RunConfig, default_recipe, recipe_settings
from lotnet.data import Batches, Dataset, Shard
from lotnet.errors import InputError
from lotnet.runs.checkpoint import Best
from lotnet.runs.data import check_crop, folder_shape, image_spec, load_data, split_training, with_shape
from lotnet.runs.directory import SELF_TRAINING_PLAN, Run, fresh_path
from lotnet.spelling import counted
from lotnet.terminal import Console
from lotnet.training import loop
from lotnet.training.evaluate import Accuracy, evaluate
from lotnet.training.initial import read_initial
from lotnet.training.launch import cpu_threads, destroy_process_group, launch, make_fabric, on_rank_zero
from lotnet.training.memory import check_memory
from lotnet.training.resolve import resolved

__all__ = ["train"]


def train(
    recipe: str | Path | RunConfig | None = None,
    out: str | Path | None = None,
    *,
    device: str = "auto",
    overwrite: bool = False,
    resume: bool = False,
    quiet: bool = False,
    **overrides: Any,
) -> Run:
    """Train a model and return its run directory.

    Args:
        recipe: the name of a packaged recipe, the path of a YAML file (for instance a run's config.yaml), or a
            `RunConfig`. By default, the recipe for the data set in the override `data.name`, or for digits without one.
        out: the run directory; by default the first free `runs/RECIPE-N`.
        device: cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.
        overwrite: replace the run that is in `out`. Nothing that is not a run is ever removed.
        resume: continue the run in `out` from its last checkpoint. Without recipe and overrides, the run's own settings
            apply. With them, they must equal the run's settings, and a run that does not exist yet is started. So a
            script that was stopped can simply be run again.
        quiet: print no progress on stderr.
        overrides: settings by dotted name, which replace the recipe's.

    Contract: `lotnet train` with the same settings gives the same result, bit for bit on a CPU. Bad input raises an
    `InputError` before anything is written. On Ctrl-C, SIGTERM or SIGHUP, `train` saves a checkpoint and raises
    `lotnet.training.signals.Interrupted`.

    >>> import tempfile
    >>> small = {"model.channels": 4, "limit": 64, "trainer.batch_size": 32, "trainer.epochs": 1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train("digits/default", out=f"{folder}/run", quiet=True, **small)
    ...     [record.epoch for record in run.metrics()]
    [1]
    """
    if resume and (out is None or overwrite):
        raise InputError("resume=True continues the run in out: give out, and leave overwrite out")
    if resume and recipe is None and not overrides:
        name = str(out)
        config = open_run(Path(name)).config
        command = ["lotnet", "train", "--resume", name]
    else:
        config, name = configuration(recipe, overrides, device)
        command = _command(recipe, name, overrides)
    folder = RunFolder(None if out is None else Path(out), name, overwrite, resume)
    ready = start(config, folder, device)
    try:
        ready.train(Console(stderr=True, quiet=quiet), command)
    finally:
        destroy_process_group()
    return ready.run


def _command(recipe: str | Path | RunConfig | None, name: str, overrides: Mapping[str, Any]) -> list[str]:
    """The command line that does the same as a call of `train`. A `RunConfig` is the run's own config.yaml."""
    words = ["lotnet", "train", "--config", "config.yaml" if isinstance(recipe, RunConfig) else name]
    for name, value in overrides.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words += [f"--{name}", text]
    return words


def configuration(
    recipe: str | Path | RunConfig | None, overrides: Mapping[str, Any] | None = None, device: str = "auto"
) -> tuple[RunConfig, str]:
    """Return the settings of a run, and the name for its directory."""
    overrides = overrides or {}
    if isinstance(recipe, RunConfig):
        return with_shape(recipe.override(overrides)), "run"
    name = default_recipe(overrides.get("data.name", "digits")) if recipe is None else str(recipe)
    settings = recipe_settings(name).override(overrides, f"{name} with overrides")
    return with_shape(RunConfig.from_settings(resolved(settings, overrides, device))), name


@dataclass(frozen=True)
class RunFolder:
    """The directory of a run, and whether to make, replace or resume the run there."""

    path: Path | None
    """None takes the first free runs/NAME-N."""
    name: str = "run"
    overwrite: bool = False
    resume: bool = False

    def create_or_open(self, config: RunConfig) -> Run:
        """Make the run with these settings, or open it to resume it. A resumed run must have the same settings."""
        path = fresh_path(self.name) if self.path is None else self.path
        if not self.resume:
            return Run.create(path, config, self.overwrite)
        _refuse_part_of_selftraining(path)
        return Run.open_or_create(path, config)


def open_run(path: Path) -> Run:
    """Open a run to continue it. Refuses a part of a self-training run, whose training images are chosen elsewhere."""
    run = Run.open(path)
    _refuse_part_of_selftraining(path)
    return run


def _refuse_part_of_selftraining(path: Path) -> None:
    if (path.parent / SELF_TRAINING_PLAN).is_file():  # its config.yaml does not say which labels are hidden
        raise InputError(f"{path} is part of a self-training run: use `lotnet selftrain --resume {path.parent}`")


@dataclass(frozen=True)
class ReadyRun:
    """A run that is ready to be trained, with its data and its Fabric."""

    run: Run
    dataset: Dataset
    fabric: Fabric

    def train(self, console: Console, command: Sequence[str] = ()) -> Best:
        """Train to the end, from the last checkpoint if there is one. Returns the score of the best epoch.

        The run records `command`, or the command line of this process.
        """
        return loop.train(self.run, self.dataset, self.fabric, console, command=command)

    def test_accuracy(self) -> Accuracy:
        """Measure the accuracy of the best checkpoint on the test images, which were not used to choose it."""
        model, trainer = self.run.best_model().to(self.fabric.device), self.run.config.trainer
        batches = Batches(
            self.dataset.test,
            trainer.batch_size,
            device=self.fabric.device,
            dtype=next(model.parameters()).dtype,
            shard=Shard(self.fabric.global_rank, self.fabric.world_size),
        )
        with cpu_threads(trainer.threads):
            return evaluate(model, batches, RADII, self.fabric)


def start(config: RunConfig, folder: RunFolder, device: str = "auto") -> ReadyRun:
    """Start the processes, load and check the data, then make or open the run directory."""
    fabric = make_fabric(config.trainer, device)
    launch(fabric)
    shape = folder_shape(config)
    if shape is not None:  # first, because decoding a folder to a large size takes long
        check_memory(config, shape, fabric)
    dataset = load_data(config)
    check(config, dataset)
    path = on_rank_zero(fabric, lambda: folder.create_or_open(config).path)
    return ReadyRun(Run.open(path), dataset, fabric)


def check(config: RunConfig, dataset: Dataset) -> None:
    """Refuse settings that do not fit the data, before a run directory is made."""
    config.model.build(image_spec(dataset))
    if config.init is not None:
        read_initial(config.init).check(dataset)
    check_crop(config, dataset)
    training, _ = split_training(config, dataset.train)
    batch = config.trainer.batch_size
    if len(training) < batch:
        remedies = ["lower trainer.batch_size"]
        if config.limit is not None:
            remedies.append("raise the limit")
        if len(dataset.train) >= batch:
            remedies.append("lower data.validation")
        fills = "does not fill" if len(training) == 1 else "do not fill"
        raise InputError(
            f"{counted(len(training), 'training image')} {fills} one batch of {batch}: {' or '.join(remedies)}"
        )
