"""The data of a report, read from run directories and checked."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lotnet.config import RunConfig
from lotnet.config.settings import kind_of
from lotnet.data import public_name
from lotnet.errors import InputError
from lotnet.paper.results import command_of, row_of_run
from lotnet.paper.tables import Row
from lotnet.paper.titles import joined, words
from lotnet.runs.attacks import FILE as ATTACKS
from lotnet.runs.attacks import AttackRecord, read_attacks
from lotnet.runs.certificates import Certification
from lotnet.runs.directory import Run
from lotnet.runs.environment import Environment, Session
from lotnet.runs.metrics import EpochMetrics, best_epoch


@dataclass(frozen=True, eq=False)
class RunData:
    """One certified run. Arrays have one entry per image, in the order of the certificates."""

    name: str
    config: RunConfig
    environment: Environment
    metrics: list[EpochMetrics]
    certification: Certification
    predictions: np.ndarray
    labels: np.ndarray
    margins: np.ndarray
    radii: np.ndarray
    """Certified radii by claim B."""
    attacks: AttackRecord | None
    paper: Row | None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.environment.classes

    @property
    def correct(self) -> np.ndarray:
        return self.predictions == self.labels

    @property
    def clean(self) -> float:
        return float(self.correct.mean())

    def certified(self, radius: float) -> float:
        """Share of images that are classified correctly with a radius larger than `radius`."""
        return float((self.correct & (self.radii > radius)).mean())

    @property
    def mean_radius(self) -> float:
        """Mean over all images, with radius zero for misclassified ones."""
        return float(np.where(self.correct, self.radii, 0.0).mean())

    @property
    def about(self) -> str:
        """The images, in words. Radii of images of different sizes cannot be compared."""
        images = self.environment.images
        shape = f"{images.channels} x {images.height} x {images.width}"
        return f"{self.data}, {self.certification.split}, {shape}"

    @property
    def data(self) -> str:
        """The data set, without the path of a folder."""
        return public_name(self.certification.data)

    @property
    def title(self) -> str:
        """Network, layer and loss in words."""
        return joined(words(self.config.model, self.config.loss))

    @property
    def loss(self) -> str:
        """The name of the loss in `lotnet.losses.LOSSES`."""
        return kind_of(self.config.loss)

    @property
    def session(self) -> Session:
        """The first session of the run."""
        return self.environment.sessions[0]


def collect(paths: list[Path]) -> list[RunData]:
    """Collect runs in the given order. They must be certified on the same data, so that accuracies are comparable."""
    if not paths:
        raise InputError("a report needs at least one run: name its folder, as in `lotnet report runs/demo`")
    if len({path.resolve() for path in paths}) < len(paths):
        raise InputError("the same run is given twice: name each run once")
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    runs = [_collect(path, name) for path, name in zip(paths, names, strict=True)]
    for path, run in zip(paths[1:], runs[1:], strict=True):
        same = run.certification.data == runs[0].certification.data  # folders of one name may be different
        if not same or run.about != runs[0].about or run.classes != runs[0].classes:
            raise InputError(
                f"{path} is certified on other data ({run.about}) than {paths[0]} ({runs[0].about}): "
                "make a page for each"
            )
    return runs


def _collect(path: Path, name: str) -> RunData:
    run = Run.open(path)
    certification, environment, metrics = run.certification(), run.environment(), run.metrics()
    predictions = np.array([image.prediction for image in certification.images], dtype=np.int64)
    labels = certification.labels()
    if max(predictions.max(), labels.max()) >= len(environment.classes):
        raise InputError(
            f"the certificates of {path} have classes that the run does not have: make them again with "
            f"`lotnet certify {path}`"
        )
    best_epoch(metrics, run.config.trainer.radius)  # refuses what the page cannot show
    return RunData(
        name=name,
        config=run.config,
        environment=environment,
        metrics=metrics,
        certification=certification,
        predictions=predictions,
        labels=labels,
        margins=np.array([image.margin for image in certification.images]),
        radii=np.array([image.radius_float for image in certification.images]),
        attacks=_attacks(path, certification.checksum, len(environment.classes)),
        paper=row_of_run(run.config, command_of(environment.sessions[0].command)),
    )


def _attacks(path: Path, checksum: str, classes: int) -> AttackRecord | None:
    """The results of `lotnet attack` on the certified model; None if it was not attacked."""
    file = path / ATTACKS
    if not file.exists():
        return None
    remedy = f"delete it, or make it again with `lotnet attack {path}`"
    found = read_attacks(file, remedy)
    if found.checksum not in (None, checksum):
        raise InputError(f"{file} is about another model than the certificates: {remedy}")
    if any(example.after >= classes for example in found.nearest):
        raise InputError(f"{file} has classes that the run has not: {remedy}")
    return found
