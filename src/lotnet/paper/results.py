"""Measured results: one JSON file per certified run, and the table that compares them with the paper's rows."""

import shlex
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from lotnet.attacks import LINF_RADIUS, PGD_LINF, AttackLoss
from lotnet.certification.audit import AuditRow
from lotnet.certification.plain import RADII
from lotnet.certification.summary import Summary
from lotnet.config import RunConfig, SelfTrainingConfig
from lotnet.errors import InputError
from lotnet.files import make_folder
from lotnet.losses import CReg, CrossEntropy
from lotnet.models import LipConvnet, LipResNet18, ModelConfig
from lotnet.paper.tables import ACCURACIES, Row, rows
from lotnet.paper.titles import joined, words
from lotnet.records import parse_json, read_record, read_text, write_record
from lotnet.runs.attacks import LINF_FILE, read_linf
from lotnet.runs.certificates import Certification
from lotnet.runs.directory import Run
from lotnet.runs.environment import Hardware
from lotnet.runs.metrics import best_epoch
from lotnet.runs.selftraining import CertifiedAccuracy, ImageCounts, Measured

FORMAT = 1
_SESSION_OPTIONS = ("--out", "--device", "--resume", "--overwrite", "--json")
"""Options that do not change the result of a run. They are left out of the command that repeats the run."""
_VARIED = frozenset({"parametrization", "activation", "padding_mode", "head", "depth", "residual"})
"""Settings of networks in which the paper's rows differ."""


@dataclass(frozen=True)
class ResultSession:
    """Commit, versions and hardware of one session of a run."""

    started: str
    commit: str | None
    versions: dict[str, str | None]
    hardware: Hardware


@dataclass(frozen=True)
class LInfResult:
    """Accuracy under the paper's l-infinity attack, and the attack's settings."""

    attacked: float
    radius: float
    steps: int
    restarts: int
    seed: int
    step_size: float = PGD_LINF.step_size
    loss: AttackLoss = "margin"


@dataclass(frozen=True)
class StudentResult:
    """What a student of self-training learned from, and what was measured of it and its teacher."""

    settings: SelfTrainingConfig
    seed: int
    images: ImageCounts
    teacher: CertifiedAccuracy
    measured: Measured

    def teacher_percentages(self) -> dict[str, float]:
        """The teacher's accuracies in percent under the names of `ACCURACIES`."""
        shares = zip(ACCURACIES, (self.teacher.clean, *self.teacher.certified), strict=True)
        return {name: 100 * share for name, share in shares}


@dataclass(frozen=True)
class Result:
    """The results of one run on all test images, with everything needed to repeat it. Accuracies are in [0, 1]."""

    name: str
    command: str
    config: dict[str, Any]
    sessions: list[ResultSession]
    parameters: int
    epochs: int
    best_epoch: int
    train_seconds: float
    evaluation_seconds: float
    """Duration of one pass of the frozen float32 model over the test images, on `evaluation_device`."""
    evaluation_device: str
    checksum: str
    summary: Summary
    audit: list[AuditRow]
    linf: LInfResult | None = None
    """None where `lotnet attack` has not measured it."""
    selftraining: StudentResult | None = None
    """None for a run that is not a student of self-training. `config` is the student's."""

    @cached_property
    def run_config(self) -> RunConfig:
        """`config` with the types of this version, whichever version wrote it."""
        return RunConfig.from_dict(self.config, self.name)

    def percentages(self) -> dict[str, float]:
        """Accuracies in percent under the names of the paper's columns: `ACCURACIES` and, if measured, `pgd_linf`."""
        shares = dict(zip(ACCURACIES, (self.summary.clean, *self.summary.certified["float"]), strict=True))
        if self.linf is not None:
            shares["pgd_linf"] = self.linf.attacked
        return {name: round(100 * share, 2) for name, share in shares.items()}


def collect(run_path: Path, name: str) -> Result:
    """The result of a run that was trained to its end and certified on its test images."""
    run = Run.open(run_path)
    certification = run.certification()
    if certification.split != "test" or not set(RADII) <= set(certification.summary.radii):
        raise InputError(
            f"a result is about the test images at 36, 72 and 108/255: run `lotnet certify {run_path}` again"
        )
    environment, metrics = run.environment(), run.metrics()
    return Result(
        name=name,
        command=command_of(environment.sessions[0].command),
        config=run.config.to_public_dict(),
        sessions=[ResultSession(s.started, s.commit, s.versions, s.hardware) for s in environment.sessions],
        parameters=environment.parameters,
        epochs=len(metrics),
        best_epoch=best_epoch(metrics, run.config.trainer.radius),
        train_seconds=round(sum(record.seconds for record in metrics), 1),
        evaluation_seconds=round(certification.evaluation_seconds, 3),
        evaluation_device=certification.device,
        checksum=certification.checksum,
        summary=certification.summary.at(RADII),
        audit=certification.audit,
        linf=_linf(run, certification),
    )


def _linf(run: Run, certification: Certification) -> LInfResult | None:
    """The accuracy under the paper's l-infinity attack, if it was measured on the model and images of the certificates.

    What was measured on something else is left out: a result is about one model and all test images.
    """
    path = run.path / LINF_FILE
    if not path.exists():
        return None
    found = read_linf(path)
    images = (certification.checksum, certification.summary.images, certification.split)
    attack = (LINF_RADIUS, PGD_LINF.steps, PGD_LINF.step_size)
    if (found.checksum, found.images, found.split, found.radius, found.steps, found.step_size) != (*images, *attack):
        return None
    return LInfResult(**{item.name: getattr(found, item.name) for item in fields(LInfResult)})


def save(result: Result, folder: Path) -> Path:
    make_folder(folder, "choose another folder with --to")
    path = folder / f"{result.name}.json"
    write_record(path, result, FORMAT)
    return path


def load_all(folder: Path) -> list[Result]:
    """Every result in a folder, sorted by name. What other programs wrote there, such as benchmarks, is skipped."""
    remedy = "restore it, or move it elsewhere"
    return [read_record(Result, path, remedy) for path in sorted(folder.glob("*.json")) if _is_result(path, remedy)]


def _is_result(path: Path, remedy: str) -> bool:
    try:
        content = parse_json(read_text(path, remedy))
    except ValueError:
        raise InputError(f"{path} is damaged (it is not JSON): {remedy}") from None
    return isinstance(content, dict) and {"summary", "audit"} <= content.keys()


def paper_row(result: Result) -> Row | None:
    """The paper's row with the settings of a result, or None."""
    return row_of_run(result.run_config, result.command)


def row_of_run(config: RunConfig, command: str, table: str = "sup") -> Row | None:
    """The paper's row with the settings of a run that `command` trained, or None."""
    return None if _is_selftrained(command) else row_like(config, table)


def _is_selftrained(command: str) -> bool:
    """Whether self-training made the run. Then its settings match a supervised row, but its labels do not."""
    return command.startswith("lotnet selftrain")


def row_like(config: RunConfig, table: str = "sup") -> Row | None:
    """The paper's row with the same data, model, layer and techniques, or None.

    A run on a part of the images, or one that started from another model, has no row.

    `table` is a prefix of the names of the tables to search.
    """
    return next((row for row in rows() if row.table.startswith(table) and _is_like(config, row)), None)


def _is_like(config: RunConfig, row: Row) -> bool:
    model = config.model
    if isinstance(model, LipConvnet):
        # Shallow networks have no residual connections, whatever the setting says.
        name, same = f"LipConvnet-{model.depth}", model.depth <= 10 or row.residual == model.residual
    elif isinstance(model, LipResNet18):
        name, same = "ResNet-18", True
    else:
        return False
    creg = config.loss == CReg() and model.activation == "hh1"
    plain = config.loss == CrossEntropy() and model.activation == "maxmin"
    return (
        same
        and config.limit is None
        and config.init is None
        and (config.data.augment, config.data.flip, config.data.crop) == ("standard", None, None)
        and (creg or plain)
        and _varies_only(model, _VARIED)
        and row.dataset == config.data.name.replace("-", "")
        and row.model == name
        and row.conv == model.parametrization.upper()
        and row.creg_hh == creg
        and row.lln == (model.head == "lln")
        and row.padding == model.padding_mode.replace("zeros", "zero")
    )


def _varies_only(model: ModelConfig, names: frozenset[str]) -> bool:
    """Whether all other settings of the network are at their defaults."""
    given = {item.name: getattr(model, item.name) for item in fields(model) if item.name in names}
    return model == type(model)(**given)


def title(result: Result) -> str:
    """A name for plots and tables: network, layer, loss, what is unusual, and the number of epochs."""
    config = result.run_config
    return f"{joined(words(config.model, config.loss))}, {result.epochs} epochs"


def measured(results: list[Result]) -> dict[Row, Result]:
    """The result to compare with each of the paper's rows: the longest run of that row.

    Ties go to the run with the most unlabeled images, and then to the newest. The accuracy of a result does not affect
    the choice.
    """
    found: dict[Row, Result] = {}
    for result in sorted(results, key=lambda result: (result.epochs, unlabeled(result), result.sessions[0].started)):
        found |= {row: result for row in rows() if is_result_of(result, row)}
    return found


def is_result_of(result: Result, row: Row) -> bool:
    """Whether a result has the settings of the row, except for the number of epochs and the unlabeled images."""
    if result.selftraining is not None:
        comparable = row.setting == "semi-supervised" and result.selftraining.settings.labeled is None
    else:
        attacked = result.linf is not None and row.pgd_linf is not None
        comparable = not _is_selftrained(result.command) and (row.is_supervised or attacked)
    return comparable and _is_like(result.run_config, row)


def unlabeled(result: Result) -> int:
    """How many unlabeled images a run has learned from."""
    return 0 if result.selftraining is None else result.selftraining.images.learned_from


def command_of(words: list[str]) -> str:
    """The command line of a run, without the options of one session."""
    kept: list[str] = []
    skip = False
    for word in words[1:]:
        if skip:
            skip = False
        elif word.split("=")[0] in _SESSION_OPTIONS:
            skip = "=" not in word and word not in ("--overwrite", "--json")
        else:
            kept.append(word)
    return shlex.join(["lotnet", *kept])
