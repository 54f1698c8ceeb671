"""Plan of self-training: its settings, and which images each stage may see.

A teacher is trained on labelled images, and labels the others. A student is trained on both.

Invariants:

* hidden labels are not used for training or for choosing an epoch: `Parts.hidden` is only compared with the teacher's
  labels;
* no network is trained on the held-out images. They choose the best epoch of both, and measure the teacher's error;
* no part contains test images;
* the plan and the seed determine everything, including which labels are hidden.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from lotnet.config import RunConfig, SelfTrainingConfig
from lotnet.config.formats import FORMAT, check_format, current_names
from lotnet.config.reader import field_types, flatten, read_value
from lotnet.config.yaml_text import read_yaml
from lotnet.data import Dataset, Mixture, Split, hide_labels, validation_split
from lotnet.errors import InputError
from lotnet.files import atomic_write, make_folder
from lotnet.runs.directory import SELF_TRAINING_PLAN
from lotnet.selftraining.choice import most_confident
from lotnet.selftraining.pseudolabels import PseudoLabels
from lotnet.selftraining.unlabeled_images import UnlabeledImages

FILE = SELF_TRAINING_PLAN
TEACHER, STUDENT = "teacher", "student"


@dataclass(frozen=True)
class Plan:
    """All settings that determine the result of self-training. Invariant: `Plan.from_yaml(plan.to_yaml()) == plan`."""

    training: RunConfig
    """Settings of the student. The teacher's differ in the number of epochs. Each run has one of `seeds`."""
    selftraining: SelfTrainingConfig = field(default_factory=SelfTrainingConfig)
    seeds: tuple[int, ...] = (0,)
    command: tuple[str, ...] = field(default=(), compare=False)
    """The command line that made the plan, for the record."""

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise InputError("--seeds takes how many (3) or which (0 1 2): different numbers, none negative")
        if self.training.trainer.devices * self.training.trainer.nodes > 1:
            raise InputError("self-training runs in one process: leave trainer.devices and trainer.nodes at 1")

    def for_seed(self, seed: int) -> "Plan":
        """The plan for one seed only."""
        return dataclasses.replace(self, seeds=(seed,), training=dataclasses.replace(self.training, seed=seed))

    def folder(self, root: Path, seed: int) -> Path:
        """Folder of one seed: `root` itself if there is only one seed."""
        return root if len(self.seeds) == 1 else root / f"seed-{seed}"

    def stage(self, name: str, seed: int) -> RunConfig:
        """Settings of the teacher's or the student's training run."""
        trainer = self.training.trainer
        if name == TEACHER:
            trainer = dataclasses.replace(trainer, epochs=self.selftraining.teacher_epochs or trainer.epochs)
        return dataclasses.replace(self.training, trainer=trainer, seed=seed)

    def write(self, folder: Path) -> None:
        make_folder(folder, "choose another --out")
        atomic_write(folder / FILE, self.to_yaml().encode())

    @staticmethod
    def read(folder: Path) -> "Plan":
        try:
            text = (folder / FILE).read_text()
        except (OSError, UnicodeDecodeError):
            raise InputError(f"{folder} holds no self-training: name a folder that `lotnet selftrain` made") from None
        return Plan.from_yaml(text, str(folder / FILE))

    def to_yaml(self) -> str:
        content: dict[str, Any] = {"format": FORMAT, "command": list(self.command), "seeds": list(self.seeds)}
        content |= dataclasses.asdict(self.selftraining) | {"training": self.training.to_dict()}
        return yaml.safe_dump(content, sort_keys=False)

    @staticmethod
    def from_yaml(text: str, source: str) -> "Plan":
        content = read_yaml(text, source)
        check_format(content, source, "open it with the version that wrote it, or start again")
        if not {"training", "seeds"} <= content.keys():
            raise InputError(f"{source} lacks its training settings or seeds: put it back as it was")
        version, training = content["format"], content.pop("training")
        seeds = read_value(content.pop("seeds"), tuple[int, ...], "seeds", source)
        command = read_value(content.pop("command", []), tuple[str, ...], "command", source)
        known = field_types(SelfTrainingConfig)
        flat = flatten(current_names(content, source), known, source)
        settings = {name: read_value(value, known[name], name, source) for name, value in flat.items()}
        if not isinstance(training, dict):
            raise InputError(f"{source}: training is not a group of settings, `key: value` on each line")
        config = RunConfig.from_dict({"format": version} | training, source)
        return Plan(config, SelfTrainingConfig(**settings), seeds, command)


@dataclass(frozen=True, eq=False)
class Parts:
    """Which images each stage may see."""

    dataset: Dataset
    """The data set as loaded. The stages use its classes and its test images."""
    labeled: Split
    held_out: Split
    images: Tensor  # n c h w, uint8
    """Unlabelled images, those with hidden labels first."""
    hidden: Tensor
    """Hidden labels of the first unlabelled images. They only count the teacher's mistakes."""
    source: str
    """Where the unlabelled images come from, in words."""
    settings: SelfTrainingConfig
    near_duplicates: int | None = None
    """How many unlabelled images were left out because they are nearly the same as a test image."""

    def for_teacher(self) -> Dataset:
        return dataclasses.replace(self.dataset, train=self.labeled)

    def chosen(self, found: PseudoLabels) -> Tensor:
        """Indices of the unlabeled images that the student is trained on."""
        return most_confident(found, self.settings.most_confident, len(self.dataset.classes))

    def for_student(self, found: PseudoLabels) -> Dataset:
        """The labeled images, and the chosen unlabeled ones with the teacher's labels."""
        chosen, share = self.chosen(found), self.settings.unlabeled_share
        images = torch.cat([self.labeled.images, self.images[chosen]])
        labels = torch.cat([self.labeled.labels, found.labels[chosen]])
        mixture = None if share is None else Mixture(len(self.labeled), share)
        return dataclasses.replace(self.dataset, train=Split(images, labels, mixture))


def divide(dataset: Dataset, settings: SelfTrainingConfig, seed: int, extra: UnlabeledImages | None = None) -> Parts:
    """Hide labels, and hold out a part of the images that keep theirs. `extra` comes from `load_unlabeled`.

    The held-out images depend on the seed, but with a teacher that is trained already they are those that it held out.
    """
    shown, sources = dataset.train, []
    images, hidden = shown.images[:0], shown.labels[:0]
    if settings.labeled is not None:
        _check_fraction(dataset, settings.labeled)
        shown, images, hidden = hide_labels(dataset.train, settings.labeled, seed)
        sources.append(f"{len(hidden)} training images of {dataset.name} with their labels hidden")
    if extra is not None:
        images = torch.cat([images, extra.images])
        sources.append(f"{len(extra.images)} {extra.source}")
    if settings.teacher is None:
        labeled, held_out = validation_split(shown, settings.held_out, seed)
    else:
        labeled, held_out = validation_split(shown)
    copies = None if extra is None else extra.near_duplicates
    return Parts(dataset, labeled, held_out, images, hidden, " and ".join(sources), settings, copies)


def _check_fraction(dataset: Dataset, fraction: float) -> None:
    """Check that each class has two labels: one to learn from, and one to hold out."""
    counts = torch.bincount(dataset.train.labels, minlength=len(dataset.classes)).tolist()
    count, name = min(zip(counts, dataset.classes, strict=True))
    if round(fraction * count) < 2:
        remedy = "add images of that class, or raise --limit" if count < 4 else f"use at least {2 / count:.2g}"
        raise InputError(
            f"labeled {fraction} leaves the class {name} ({count} training images) without the two labels it needs, "
            f"one to learn from and one to hold out: {remedy}"
        )
