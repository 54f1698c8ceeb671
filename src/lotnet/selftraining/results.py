"""The results of self-training, and `selftraining.json`, the file that stores them.

Invariant: `read(path)` returns what `write(path, results)` was given.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import ClassVar

from lotnet.certification.plain import in_255ths
from lotnet.files import unreadable
from lotnet.records import parse_record, write_record
from lotnet.runs.selftraining import CertifiedAccuracy, ImageCounts, Measured
from lotnet.selftraining.theorems import Statement

FORMAT = 1
FILE = "selftraining.json"


@dataclass(frozen=True)
class SeedResult:
    """The results of one seed."""

    seed: int
    images: ImageCounts
    radii: tuple[float, ...]
    """Radii at which accuracies are certified."""
    teacher: CertifiedAccuracy
    student: CertifiedAccuracy
    measured: Measured
    theorems: tuple[Statement, ...]


@dataclass(frozen=True)
class Comparison:
    """Teacher, student, and their difference in each column: mean and spread over the seeds."""

    columns: tuple[str, ...]
    mean: dict[str, tuple[float, ...]]
    spread: dict[str, tuple[float | None, ...]]
    """Sample standard deviation; None for a single seed."""


@dataclass(frozen=True)
class Results:
    """The results of all seeds of a plan."""

    DERIVED: ClassVar = ("columns", "mean", "spread")

    seeds: tuple[SeedResult, ...]

    def __post_init__(self) -> None:
        if not self.seeds:
            raise ValueError("seeds is empty")

    @property
    def columns(self) -> tuple[str, ...]:
        return self.compare().columns

    @property
    def mean(self) -> dict[str, tuple[float, ...]]:
        return self.compare().mean

    @property
    def spread(self) -> dict[str, tuple[float | None, ...]]:
        return self.compare().spread

    def compare(self) -> Comparison:
        """Compare teacher and student. Differences are taken seed by seed."""
        rows = {
            "teacher": [result.teacher.columns() for result in self.seeds],
            "student": [result.student.columns() for result in self.seeds],
        }
        rows["difference"] = [
            [s - t for s, t in zip(student, teacher, strict=True)]
            for student, teacher in zip(rows["student"], rows["teacher"], strict=True)
        ]
        return Comparison(
            columns=("clean", *map(in_255ths, self.seeds[0].radii), "mean radius"),
            mean={who: tuple(map(fmean, zip(*seeds, strict=True))) for who, seeds in rows.items()},
            spread={who: tuple(map(spread, zip(*seeds, strict=True))) for who, seeds in rows.items()},
        )


def spread(values: tuple[float, ...]) -> float | None:
    """Sample standard deviation; None for a single value."""
    return stdev(values) if len(values) > 1 else None


def write(path: Path, results: Results) -> None:
    write_record(path, results, FORMAT)


def read(path: Path) -> Results:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    return parse_record(Results, content, str(path), "delete it, and `lotnet selftrain --resume` writes it again")
