"""Train and certify the variants of an ablation. `ablation.json` stores the results.

Invariants:

* nothing is written before every variant is known to work on the data;
* a run that is finished and certified is not repeated, and a run with other settings is neither continued nor replaced;
* `read(path)` returns what `write(path, result)` was given.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from lotnet.certification.plain import RADII
from lotnet.certify_run import certify_split
from lotnet.config import RunConfig, Settings
from lotnet.errors import InputError
from lotnet.load_model import load_model
from lotnet.paper import results
from lotnet.paper.ablations import BASE, PAPER_RECIPE, Ablation
from lotnet.paper.tables import Overrides, Row
from lotnet.records import read_record, write_record
from lotnet.runs.certificates import certificate_files
from lotnet.runs.data import image_spec, load_data, with_shape
from lotnet.runs.directory import Run
from lotnet.training.launch import launch, make_fabric
from lotnet.training.loop import train
from lotnet.training.run import check

FORMAT = 1
FILE = "ablation.json"


@dataclass(frozen=True)
class Variant:
    """One variant of an ablation, with all settings of its run."""

    name: str
    settings: Overrides
    """The settings that this variant sets."""
    config: RunConfig
    paper: Row | None
    """The paper's row of this variant, in the paper's own setting."""


@dataclass(frozen=True)
class VariantResult:
    """The results of one variant. Accuracies are percentages, certified by claim B, named like the paper's columns."""

    variant: str
    settings: Overrides
    run: str
    """Path of the run directory."""
    data: str
    epochs: int
    images: int
    """Number of test images."""
    clean: float
    cert_36: float
    cert_72: float
    cert_108: float
    mean_radius: float
    train_seconds: float
    paper: Row | None


@dataclass(frozen=True)
class AblationResult:
    """The results of the variants that are finished, in the order of the ablation."""

    ablation: str
    about: str
    variants: tuple[VariantResult, ...]


def write(path: Path, result: AblationResult) -> None:
    write_record(path, result, FORMAT)


def read(path: Path) -> AblationResult:
    return read_record(AblationResult, path, "delete it, and `lotnet ablate` writes it again")


def paper_row(ablation: Ablation, config: RunConfig) -> Row | None:
    """The row of the paper's ablation with these settings, or None where the paper has none."""
    return None if ablation.table is None else results.row_like(config, ablation.table)


def make_variants(shared: Settings, ablation: Ablation) -> list[Variant]:
    """The variants of an ablation, each with its own settings over the shared ones."""
    variants = []
    for name, overrides in ablation.variants.items():
        config = RunConfig.from_settings(shared.override(overrides, f"variant {name}"))
        in_paper = RunConfig.from_recipe(PAPER_RECIPE, BASE | overrides)
        variants.append(Variant(name, overrides, config, paper_row(ablation, in_paper)))
    return variants


def check_variants(variants: list[Variant]) -> None:
    """Refuse a variant that cannot be trained. Builds each network and runs one image through it."""
    for variant in variants:
        trainer = variant.config.trainer
        if trainer.devices * trainer.nodes > 1:
            raise InputError("an ablation trains in one process: leave trainer.devices and trainer.nodes at 1")
    dataset = load_data(variants[0].config)
    for variant in variants:
        check(variant.config, dataset)
        try:
            with torch.no_grad():
                variant.config.model.build(image_spec(dataset))(torch.zeros(1, *dataset.shape))
        except InputError as error:
            raise InputError(f"variant {variant.name} cannot work on {dataset.name}: {error}") from None


def run_variants(name: str, about: str, variants: list[Variant], folder: Path, device: str, console: Console) -> Path:
    """Train and certify every variant in a run directory of its own, FOLDER/VARIANT. Returns the path of ablation.json.

    The file is written again after each variant. Raises `Interrupted` on a signal. The same call continues the runs.
    """
    variants = [replace(variant, config=with_shape(variant.config)) for variant in variants]
    check_variants(variants)
    remedy = "choose another --out, or repeat them"
    runs = [Run.open_or_create(folder / variant.name, variant.config, remedy) for variant in variants]
    done: tuple[VariantResult, ...] = ()
    for variant, run in zip(variants, runs, strict=True):
        finish(run, device, console)
        done = (*done, variant_result(variant, run))
        write(folder / FILE, AblationResult(name, about, done))
    return folder / FILE


def finish(run: Run, device: str, console: Console) -> None:
    """Train a run to the end and certify it, unless both are done. Certificates are written last."""
    if run.is_finished() and certificate_files(run.path):
        console.print(f"{run.path} is done already", soft_wrap=True, highlight=False)
        return
    fabric = make_fabric(run.config.trainer, device)
    launch(fabric)
    console.print(f"training {run.path} on {fabric.device}", soft_wrap=True, highlight=False)
    train(run, load_data(run.config), fabric, console)
    loaded = load_model(str(run.path))
    certify_split(loaded, "test", loaded.split("test", run.config.limit), list(RADII), fabric.device, console)


def variant_result(variant: Variant, run: Run) -> VariantResult:
    """The results of a variant whose run is finished and certified."""
    result = results.collect(run.path, variant.name)
    return VariantResult(
        variant=variant.name,
        settings=variant.settings,
        run=str(run.path),
        data=run.config.data.name,
        epochs=result.epochs,
        images=result.summary.images,
        **result.percentages(),
        mean_radius=result.summary.mean_radius["float"],
        train_seconds=result.train_seconds,
        paper=variant.paper,
    )
