"""What the paper's theorems on self-training speak of, counted, and what they then say.

The theorems are about probabilities; here are shares of images. docs/self-training.md says what each is, and why the
main lemma holds for labels of any number of classes with a change `delta` of 0.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from lotnet.certification import certify
from lotnet.data import Split, to_unit
from lotnet.errors import InputError
from lotnet.frozen.model import FrozenModel
from lotnet.paper.theorems import loss_bound
from lotnet.selftraining.pseudolabels import PseudoLabels, label

_AT_ONCE = 5000  # images that lie in memory as float64


@dataclass(frozen=True)
class Share:
    """`count` of `among` images."""

    count: int
    among: int

    @property
    def exact(self) -> Fraction:
        return Fraction(self.count, self.among)


@dataclass(frozen=True)
class Measured:
    """Counted on labelled images that nobody learned from, and on those without labels."""

    teacher_error: Share
    """Held-out images that the teacher gets wrong."""
    worst_class_error: Share
    """The same in the class where their share is largest."""
    disagreement: Share
    """Unlabelled images that the student calls something else than the teacher."""
    inconsistency: Share
    """Unlabelled images whose label by the student is not proved constant in the ball: by claim B, the share of those
    where it is not constant is at most this."""
    ball: float
    wrong_pseudo_labels: Share | None
    """Of images with hidden labels: only to be read, nothing is made of it."""

    def shares(self) -> dict[str, float | None]:
        return {
            name: None if value is None else value["count"] / value["among"]
            for name, value in asdict(self).items()
            if name != "ball"
        }


def measure(
    teacher: FrozenModel,
    student: FrozenModel,
    found: PseudoLabels,
    images: Tensor,
    hidden: Tensor,
    held_out: Split,
    ball: float,
    progress: Callable[[int], None] = lambda done: None,
) -> Measured:
    """Both models on the device they are on; `images` are the unlabelled ones, `hidden` labels of the first."""
    wrong = label(teacher, held_out.images, int(held_out.labels.max()) + 1).labels != held_out.labels
    classes = held_out.labels.unique().tolist()
    errors = [Share(int((wrong & mine).sum()), int(mine.sum())) for mine in (held_out.labels == c for c in classes)]
    graph = student.astype(torch.float64)
    disagreeing = unproved = 0
    for batch, labels in zip(images.split(_AT_ONCE), found.labels.split(_AT_ONCE), strict=True):
        certificates = certify(graph, to_unit(batch, torch.float64), progress=progress)
        disagreeing += int((certificates.predictions != labels).sum())
        unproved += int((certificates.radii["float"] <= ball).sum())
    return Measured(
        teacher_error=Share(int(wrong.sum()), len(wrong)),
        worst_class_error=max(errors, key=lambda error: error.exact),
        disagreement=Share(disagreeing, len(images)),
        inconsistency=Share(unproved, len(images)),
        ball=ball,
        wrong_pseudo_labels=Share(len(hidden) - found.agreeing(hidden), len(hidden)) if len(hidden) else None,
    )


@dataclass(frozen=True)
class Statement:
    """What a theorem says of a student, or in one sentence why it says nothing."""

    theorem: str
    bound: float | None
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def statements(measured: Measured) -> list[Statement]:
    return [
        _main_lemma(measured),
        Statement(
            "theorem 2",
            None,
            "Theorem 2 does not apply: it is about the best of all students, and asks how often images of two classes "
            "are neighbours, which no sample tells.",
        ),
        Statement(
            "theorem 3",
            None,
            "Theorem 3 does not apply: it is about a continuous number, and a label jumps; the mean radius above is "
            "measured instead.",
        ),
    ]


def _main_lemma(measured: Measured) -> Statement:
    """For the largest expansion that the teacher's mistakes allow: with any smaller one the bound is larger."""
    worst = measured.worst_class_error
    mistakes = f"{worst.count} of {worst.among} held-out images of its worst class"
    if not worst.count:
        sentence = (
            "The main lemma does not apply: the teacher makes no mistake on the held-out images, which leaves the "
            "expansion open."
        )
        return Statement("main lemma", None, sentence)
    if 3 * worst.count >= worst.among:
        return Statement(
            "main lemma",
            None,
            f"The main lemma does not apply: the teacher mislabels {mistakes}, and it takes less than a third in each.",
        )
    c = 1 / worst.exact
    try:
        bound = loss_bound(c, measured.disagreement.exact, measured.inconsistency.exact, measured.teacher_error.exact)
    except InputError as error:
        return Statement("main lemma", None, f"The main lemma does not apply: {error}.")
    says = f"the student's error is at most {float(bound):.3f}"
    if bound >= 1:
        says = f"the bound on the student's error is {float(bound):.3f}, which says nothing"
    elif bound < 0:
        says = f"the bound on the student's error is {float(bound):.3f}: negative, so they do not"
    sentence = f"Main lemma: if images expand {float(c):.3g} times, the most that {mistakes} mislabelled allow, {says}."
    return Statement("main lemma", float(bound), sentence)
