"""The quantities that the paper's theorems on self-training are about, and what the theorems then say.

The theorems are about probabilities. Here the quantities are shares of the images at hand. docs/self-training.md says
what each is, and why the main lemma holds for labels of any number of classes with a change `delta` of 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lotnet.certification import certify
from lotnet.data import UnitImages
from lotnet.errors import InputError
from lotnet.frozen.model import FrozenModel
from lotnet.paper.theorems import loss_bound
from lotnet.runs.data import subset_indices
from lotnet.runs.selftraining import Measured, Share
from lotnet.selftraining.plan import Parts
from lotnet.selftraining.pseudolabels import PseudoLabels, label

MOST_MEASURED = 10_000
"""Unlabelled images that are certified; of more, a random subset."""


def measure(
    teacher: FrozenModel,
    student: FrozenModel,
    found: PseudoLabels,
    parts: Parts,
    ball: float,
    progress: Callable[[int], None] = lambda done: None,
) -> Measured:
    """Measure the quantities of the theorems by counting images.

    Models run on the devices they are on, and `found` has the teacher's labels. Unlabelled images are those that
    the student was trained on, at most `MOST_MEASURED` of them.
    """
    held_out = parts.held_out
    wrong = label(teacher, held_out.images, int(held_out.labels.max()) + 1).labels != held_out.labels
    classes = held_out.labels.unique().tolist()
    errors = [Share(int((wrong & mine).sum()), int(mine.sum())) for mine in (held_out.labels == c for c in classes)]
    chosen = parts.chosen(found)
    chosen = chosen[subset_indices(len(chosen), MOST_MEASURED)]
    certificates = certify(student, UnitImages(parts.images[chosen]), progress=progress)
    disagreeing = int((certificates.predictions != found.labels[chosen]).sum())
    unproved = int((certificates.radii["float"] <= ball).sum())
    hidden = parts.hidden
    return Measured(
        teacher_error=Share(int(wrong.sum()), len(wrong)),
        worst_class_error=max(errors, key=lambda error: error.exact),
        disagreement=Share(disagreeing, len(chosen)),
        inconsistency=Share(unproved, len(chosen)),
        ball=ball,
        wrong_pseudo_labels=Share(len(hidden) - found.agreeing(hidden), len(hidden)) if len(hidden) else None,
    )


@dataclass(frozen=True)
class Statement:
    """What a theorem says about the student, or why it says nothing."""

    theorem: str
    bound: float | None
    """Bound on the student's error; None where the theorem does not apply."""
    sentence: str


def statements(measured: Measured) -> tuple[Statement, ...]:
    """What each of the paper's three statements says, in the paper's order."""
    return (
        _main_lemma(measured),
        Statement(
            "theorem 2",
            None,
            "Theorem 2 does not apply: it is about the best possible student, and needs the probability that an image "
            "has a neighbour of another class, which no sample tells.",
        ),
        Statement(
            "theorem 3",
            None,
            "Theorem 3 does not apply: it is about a continuous output, and a label is not continuous. The mean "
            "certified radius in the table above is measured instead.",
        ),
    )


def _main_lemma(measured: Measured) -> Statement:
    """Evaluate the bound for the largest expansion that the teacher's mistakes allow; a smaller one gives more."""
    worst = measured.worst_class_error
    mistakes = f"{worst.count} of {worst.among} held-out images of its worst class"
    if not worst.count:
        sentence = (
            "The main lemma does not apply: the teacher makes no mistake on the held-out images, so they do not bound "
            "the expansion."
        )
        return Statement("main lemma", None, sentence)
    if 3 * worst.count >= worst.among:
        return Statement(
            "main lemma",
            None,
            f"The main lemma does not apply: the teacher mislabels {mistakes}, and the lemma needs less than a third "
            "in every class.",
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
        says = f"the bound on the student's error is {float(bound):.3f}. It is negative, so images do not expand so far"
    sentence = (
        f"Main lemma: if images expand {float(c):.3g} times, the most that is possible when {mistakes} are "
        f"mislabelled, {says}."
    )
    return Statement("main lemma", float(bound), sentence)
