"""Settings of self-training, beside those of the student's training run."""

from dataclasses import dataclass

from lotnet.errors import InputError

HELD_OUT = 0.05
"""The part of the labeled images that `lotnet train` holds out."""


@dataclass(frozen=True)
class SelfTrainingConfig:
    """Settings of self-training: images with and without labels, and the length of the teacher's training."""

    labeled: float | None = None
    """Fraction of each class that keeps its labels. The labels of the others are hidden. By default all are kept."""
    unlabeled: str | None = None
    """Images without labels: a folder, the pickle of the paper's 500,000 images, or another prepared data set; commas
    join several. They are added to the images with hidden labels. Near-duplicates of test images are left out."""
    most_confident: int | None = None
    """Number of unlabeled images for the student: those on which the teacher is most confident, the same number of each
    class. By default all."""
    unlabeled_share: float | None = None
    """Share of unlabeled images in each batch of the student. An epoch is then one pass over the labeled images. By
    default all images are shuffled together, and an epoch is one pass over all of them."""
    teacher: str | None = None
    """The run to use as the teacher. By default a teacher is trained."""
    held_out: float = HELD_OUT
    """Fraction of the labeled images for validation. They choose the best epochs and measure the teacher's error."""
    teacher_epochs: int | None = None
    """Epochs of the teacher, which has fewer images; by default trainer.epochs, which is for the student."""
    ball: float = 36 / 255
    """Radius in which the student's labels should be proved constant."""

    def __post_init__(self) -> None:
        if self.labeled is None and self.unlabeled is None:
            raise InputError(
                "there are no unlabeled images: name a folder of them with --unlabeled, or hide labels with "
                "--labeled 0.1"
            )
        if self.teacher is not None:
            self._check_given_teacher()
        if self.most_confident is not None and self.most_confident < 1:
            raise InputError(f"most_confident must be at least 1, not {self.most_confident}")
        for name in ("labeled", "held_out", "unlabeled_share"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise InputError(f"{name} is {value}: give a fraction between 0 and 1, such as 0.1")
        if self.teacher_epochs is not None and self.teacher_epochs < 1:
            raise InputError(f"teacher_epochs must be at least 1, not {self.teacher_epochs}")
        if not self.ball >= 0:
            raise InputError(f"ball must be at least 0, not {self.ball}")

    def _check_given_teacher(self) -> None:
        """A run was trained on all labels but those that `lotnet train` holds out, and for its own epochs."""
        if self.labeled is not None or self.teacher_epochs is not None or self.held_out != HELD_OUT:
            raise InputError(
                f"the teacher {self.teacher} is already trained, on all but a twentieth of the labels: leave "
                "--labeled, --held_out and --teacher_epochs out"
            )
