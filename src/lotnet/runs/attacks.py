"""attacks.json and linf.json: the results of `lotnet attack`."""

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lotnet.attacks import AttackLoss, AttackReport
from lotnet.certification.certificate import Claim
from lotnet.records import convert, read_record, write_record

FORMAT = 1
FILE = "attacks.json"
LINF_FILE = "linf.json"


@dataclass(frozen=True)
class CounterexampleRecord:
    """A certificate that does not hold, with everything needed to verify that."""

    index: int
    claim: Claim
    attack: str
    before: int
    after: int
    radius: float
    distance: float
    squared_distance: str
    """An exact fraction."""
    image: list[Any]
    """Pixels, nested as in the tensor, with every bit of their float64."""
    perturbed: list[Any]


@dataclass(frozen=True)
class NearestRecord:
    """An image that is classified correctly, and the nearest adversarial example that was found for it."""

    index: int
    """Index among the attacked images."""
    before: int
    after: int
    radius: float
    distance: float
    perturbed: str
    """Pixels of the adversarial example: little-endian float32 in base64."""

    def pixels(self) -> np.ndarray:
        return np.frombuffer(base64.b64decode(self.perturbed, validate=True), "<f4")


@dataclass(frozen=True)
class AttackRecord:
    """The content of attacks.json: the fields of `AttackReport`. Accuracies are in [0, 1]."""

    images: int
    radius: float
    linf_radius: float
    clean: float
    attacked: dict[str, float]
    certified: float
    checked: int
    counterexamples: list[CounterexampleRecord]
    nearest: list[NearestRecord] = field(default_factory=list)
    checksum: str | None = None
    """Checksum of the model."""
    data: str = ""

    def __post_init__(self) -> None:
        """Refuse values that `lotnet attack` cannot have written."""
        if not all(0 <= share <= 1 for share in (self.clean, self.certified, *self.attacked.values())):
            raise ValueError("an accuracy is not between 0 and 1")
        if not min(self.radius, self.linf_radius) >= 0:
            raise ValueError("a radius is negative")
        for example in self.nearest:
            example.pixels()  # raises a ValueError if they are not base64
            if not 0 <= example.index < self.images or example.after < 0:
                raise ValueError("an example is about no image")


@dataclass(frozen=True)
class LInfRecord:
    """A run's row in the table of l-infinity attacks. Accuracies are in [0, 1]."""

    images: int
    clean: float
    attacked: float
    radius: float
    steps: int
    restarts: int
    seed: int
    split: str
    checksum: str
    """Of the model."""
    step_size: float = 0.25
    """Length of a step, as a fraction of the radius."""
    loss: AttackLoss = "margin"
    """What the attack lowered (the margin) or raised (the cross-entropy)."""

    def __post_init__(self) -> None:
        if not (0 <= self.attacked <= self.clean <= 1 and self.radius >= 0):
            raise ValueError("an accuracy or the radius is out of its range")


def read_linf(path: Path) -> LInfRecord:
    return read_record(LInfRecord, path, "make it again with `lotnet attack --table linf`")


def write_linf(path: Path, record: LInfRecord) -> None:
    write_record(path, record, FORMAT)


def read_attacks(path: Path, remedy: str) -> AttackRecord:
    return read_record(AttackRecord, path, remedy)


def write_attacks(path: Path, report: AttackReport, data: str) -> None:
    """Write a report. `data` is the data set that the images are from."""
    write_record(path, convert(AttackRecord, {"data": data, **report.to_dict()}), FORMAT)
