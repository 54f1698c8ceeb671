"""Summary of a set of certificates: accuracies, mean radii, the certified accuracy curve, and each class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from lotnet.certification.certificate import Certificates, Claim
from lotnet.certification.intervals import Interval, wilson

CLAIM_TITLES: dict[Claim, str] = {
    "plain": "standard certificate",
    "real": "claim A: real function",
    "float": "claim B: float64 program",
}
CLAIMS = tuple(CLAIM_TITLES)
_CURVE_POINTS = 101
_MOST_CONFUSED = 100


@dataclass(frozen=True)
class ClassSummary:
    """Clean and certified accuracy on the images of one class."""

    name: str
    images: int
    clean: float | None
    """None for a class without images, and so is each of `certified`. Files of earlier versions have 0 there."""
    certified: list[float | None]
    """By claim B, at each radius of the summary."""

    def in_words(self) -> list[str]:
        """Clean and certified accuracies in percent, or a dash where the class has no images."""
        return [_percent(share if self.images else None) for share in (self.clean, *self.certified)]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


@dataclass(frozen=True)
class Summary:
    """Summary of the certificates of a set of images. Accuracies are in [0, 1], radii in l2 of pixels in [0, 1]."""

    images: int
    clean: float
    radii: list[float]
    certified: dict[Claim, list[float]]
    """Certified accuracy at each of `radii`, for each claim."""
    mean_radius: dict[Claim, float]
    """Mean over all images; a misclassified image counts as radius zero."""
    linf_mean_radius: float
    """Implied by claim B: the l-infinity ball of radius r / sqrt(d) lies in the l2 ball of radius r."""
    l1_mean_radius: float
    """Implied by claim B: the l1 ball of radius r lies in the l2 ball of radius r."""
    curve: dict[str, list[float]]
    """`radius`: a grid of radii; `certified`: certified accuracy by claim B at each of them."""
    classes: list[ClassSummary]
    lipschitz_bound: float
    precision: str
    not_finite: int
    confusion: list[list[int]] = field(default_factory=list)
    """Number of images of each class (row) that got each prediction (column). Empty for more than 100 classes, and in
    files of earlier versions."""

    def at(self, radii: Sequence[float]) -> "Summary":
        """This summary for some of its radii."""
        places = [self.radii.index(radius) for radius in radii]
        return replace(
            self,
            radii=list(radii),
            certified={claim: [shares[n] for n in places] for claim, shares in self.certified.items()},
            classes=[replace(item, certified=[item.certified[n] for n in places]) for item in self.classes],
        )

    def intervals(self) -> "Intervals":
        certified = {claim: [wilson(s, self.images) for s in shares] for claim, shares in self.certified.items()}
        return Intervals(wilson(self.clean, self.images), certified)

    def mistakes(self) -> list["Mistake"]:
        return mistakes(self.classes, self.confusion)


@dataclass(frozen=True)
class Intervals:
    """95 % intervals of the accuracies of a summary."""

    clean: Interval
    certified: dict[Claim, list[Interval]]
    """At each radius of the summary, for each claim."""


@dataclass(frozen=True)
class Mistake:
    """How often images of one class were taken for another."""

    true: str
    predicted: str
    count: int
    images: int
    """Number of images of the true class."""


def mistakes(classes: list[ClassSummary], confusion: list[list[int]]) -> list[Mistake]:
    """The confusions of two classes, the most frequent first."""
    found = [
        Mistake(classes[true].name, classes[predicted].name, count, sum(row))
        for true, row in enumerate(confusion)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    return sorted(found, key=lambda mistake: -mistake.count)


def summarize(certificates: Certificates, radii: list[float], class_names: tuple[str, ...], dimensions: int) -> Summary:
    """Summarize labelled certificates; `dimensions` is the number of pixels times channels."""
    correct = certificates.correct()
    held = {claim: torch.where(correct, certificates.radii[claim], 0.0) for claim in CLAIMS}
    mean = {claim: float(held[claim].mean()) for claim in CLAIMS}
    grid = torch.linspace(0, float(held["float"].max()) or 1.0, _CURVE_POINTS, dtype=torch.float64)
    curve = [float((correct & (certificates.radii["float"] > r)).double().mean()) for r in grid]
    assert certificates.labels is not None
    classes = []
    for n, name in enumerate(class_names):
        in_class = certificates.labels == n
        counts = [in_class & correct, *(in_class & correct & (certificates.radii["float"] > r) for r in radii)]
        total = int(in_class.sum())
        clean, *at = [int(count.sum()) / total if total else None for count in counts]
        classes.append(ClassSummary(name, total, clean, at))
    return Summary(
        images=len(certificates),
        clean=certificates.accuracy(),
        radii=radii,
        certified={claim: [certificates.accuracy(r, claim) for r in radii] for claim in CLAIMS},
        mean_radius=mean,
        linf_mean_radius=mean["float"] / math.sqrt(dimensions),
        l1_mean_radius=mean["float"],
        curve={"radius": grid.tolist(), "certified": curve},
        classes=classes,
        lipschitz_bound=certificates.lipschitz_bound,
        precision=certificates.precision,
        not_finite=certificates.not_finite,
        confusion=_confusion(certificates, len(class_names)),
    )


def _confusion(certificates: Certificates, classes: int) -> list[list[int]]:
    assert certificates.labels is not None
    if classes > _MOST_CONFUSED:
        return []
    pairs = certificates.labels * classes + certificates.predictions
    return [list(map(int, row)) for row in torch.bincount(pairs, minlength=classes**2).view(classes, classes)]
