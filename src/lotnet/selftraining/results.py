"""The results of self-training, and `selftraining.json`, the file that stores them.

Invariant: `read(path)` returns what `write(path, results)` was given.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lotnet.certification.plain import in_255ths
from lotnet.certification.summary import Summary
from lotnet.errors import InputError
from lotnet.files import atomic_write, unreadable
from lotnet.records import convert, parse_json
from lotnet.selftraining.theorems import Measured, Statement

FORMAT = 1
FILE = "selftraining.json"


_COUNTS = {
    "labelled": "labeled",
    "held out": "held_out",
    "unlabelled": "unlabeled",
    "test": "test",
    "near-duplicates": "near_duplicates",
    "chosen": "chosen",
}
"""Names in the file, and those of the fields."""


@dataclass(frozen=True)
class ImageCounts:
    """Number of images of each kind in one run of self-training."""

    labeled: int
    """Images that the teacher is trained on."""
    held_out: int
    unlabeled: int
    test: int
    near_duplicates: int | None = None
    """Images that were left out because they are nearly the same as a test image; None if none were looked for."""
    chosen: int | None = None
    """Unlabelled images that the student is trained on; None if it is trained on all."""

    def to_dict(self) -> dict[str, int]:
        counts = {name: getattr(self, attribute) for name, attribute in _COUNTS.items()}
        return {name: count for name, count in counts.items() if count is not None}


@dataclass(frozen=True)
class CertifiedAccuracy:
    """Accuracies of one network on the test images, in [0, 1], certified by claim B."""

    checksum: str
    """Checksum of the frozen network."""
    clean: float
    certified: tuple[float, ...]
    """Certified accuracy at each of the radii."""
    mean_radius: float

    @staticmethod
    def of(summary: Summary, checksum: str) -> "CertifiedAccuracy":
        certified = tuple(summary.certified["float"])
        return CertifiedAccuracy(checksum, summary.clean, certified, summary.mean_radius["float"])

    def columns(self) -> list[float]:
        """Clean accuracy, certified accuracy at each radius, mean radius."""
        return [self.clean, *self.certified, self.mean_radius]


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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"images": self.images.to_dict(), "measured": self.measured.to_dict()}

    @staticmethod
    def from_dict(content: dict[str, Any]) -> "SeedResult":
        """Read what `to_dict` returned. Raises a `WrongType` for a value that does not have its field's type."""
        images = {_COUNTS[name]: count for name, count in content["images"].items()}
        measured = {name: value for name, value in content["measured"].items() if name != "shares"}
        return convert(SeedResult, content | {"images": images, "measured": measured})


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

    seeds: tuple[SeedResult, ...]

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

    def to_dict(self) -> dict[str, Any]:
        """The content of selftraining.json. The comparison is stored for other readers; `read` computes it again."""
        return {"format": FORMAT, "seeds": [result.to_dict() for result in self.seeds], **asdict(self.compare())}


def spread(values: tuple[float, ...]) -> float | None:
    """Sample standard deviation; None for a single value."""
    return stdev(values) if len(values) > 1 else None


def write(path: Path, results: Results) -> None:
    atomic_write(path, (json.dumps(results.to_dict(), indent=1) + "\n").encode())


def read(path: Path) -> Results:
    remedy = "delete it, and `lotnet selftrain --resume` writes it again"
    try:
        content = convert(dict[str, Any], parse_json(path.read_text()))
        if content["format"] != FORMAT:
            raise InputError(f"{path} has format {content['format']}, this lotnet reads {FORMAT}: {remedy}")
        results = Results(tuple(SeedResult.from_dict(result) for result in content["seeds"]))
        if not results.seeds:
            raise ValueError("no seed")
    except InputError:
        raise
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is damaged: {remedy}") from None
    return results
