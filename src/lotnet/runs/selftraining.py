"""Records about a student of self-training: its images, its accuracy beside the teacher's, and what was counted."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

from lotnet.certification.summary import Summary
from lotnet.records import Key


@dataclass(frozen=True)
class ImageCounts:
    """Number of images of each kind in one run of self-training."""

    labeled: Annotated[int, Key("labelled")]
    """Images that the teacher is trained on."""
    held_out: Annotated[int, Key("held out")]
    unlabeled: Annotated[int, Key("unlabelled")]
    test: int
    near_duplicates: Annotated[int | None, Key("near-duplicates", optional=True)] = None
    """Images that were left out because they are nearly the same as a test image; None if none were looked for."""
    chosen: Annotated[int | None, Key("chosen", optional=True)] = None
    """Unlabelled images that the student is trained on; None if it is trained on all."""

    @property
    def learned_from(self) -> int:
        """Number of unlabeled images that the student is trained on."""
        return self.unlabeled if self.chosen is None else self.chosen


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
class Share:
    """`count` of `among` images."""

    count: int
    among: int

    @property
    def exact(self) -> Fraction:
        return Fraction(self.count, self.among)

    @property
    def value(self) -> float:
        return self.count / self.among


@dataclass(frozen=True)
class Measured:
    """Counts of held-out labelled images, which neither network learns from, and of unlabelled images."""

    DERIVED: ClassVar = ("shares",)

    teacher_error: Share
    """Held-out images that the teacher classifies wrongly."""
    worst_class_error: Share
    """The same within the class where that share is largest."""
    disagreement: Share
    """Unlabelled images to which student and teacher give different labels."""
    inconsistency: Share
    """Unlabelled images whose label by the student is not proved constant in the ball. By claim B, this is an upper
    bound of the share of images whose label is not constant there."""
    ball: float
    """Radius of the ball."""
    wrong_pseudo_labels: Share | None
    """Images with hidden labels that the teacher mislabels. Reported, and used for nothing else."""

    def counts(self) -> dict[str, Share | None]:
        return {
            "teacher_error": self.teacher_error,
            "worst_class_error": self.worst_class_error,
            "disagreement": self.disagreement,
            "inconsistency": self.inconsistency,
            "wrong_pseudo_labels": self.wrong_pseudo_labels,
        }

    @property
    def shares(self) -> dict[str, float | None]:
        """The counts as numbers."""
        return {name: None if share is None else share.value for name, share in self.counts().items()}
