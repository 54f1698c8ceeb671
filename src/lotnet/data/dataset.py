"""Data sets in memory, and how they are split.

Invariants:

* images are uint8, n x c x h x w, with n at least one. Train and test images have the same shape;
* labels are int64 in [0, number of classes). There are at least two classes, with different names;
* the statistics for the model's `Normalize` come from the training images: one mean per channel, and one std for all
  channels, for pixels in [0, 1];
* validation images are a stratified part of the training images. No choice is made by test images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lotnet.data.counter_rng import permutation
from lotnet.data.mixture import Mixture
from lotnet.errors import InputError


@dataclass(frozen=True)
class Augmentation:
    """Random changes of an image that keep its label."""

    padding: int = 4
    """Largest shift in pixels. The image is padded with this many zeros on each side, and then cropped."""
    flip: bool = True
    """Mirror a random half of the images."""
    distort: bool = False
    """Change shape and colour of a random half of the images."""
    randaugment: bool = False
    """Apply RandAugment to a random half of the images."""


AUGMENTATION = {
    "digits": Augmentation(
        padding=1, flip=False
    ),  # a mirrored 2 is not a digit, and a shift by 4 is too much for 8 pixels
}
"""Recommended augmentation of data sets for which it is not `Augmentation()`, which is for natural images."""

STD = {
    "cifar10": 0.2507,
    "cifar100": 0.2507,
}
"""Standard deviations that papers use. For other data sets, the std is computed as it was for CIFAR-10."""


@dataclass(frozen=True, eq=False)
class Split:
    """Images and their labels. The constructor checks both."""

    images: Tensor  # n c h w, uint8
    labels: Tensor  # n, int64
    mixture: Mixture | None = None
    """How training batches are composed; by default all images are shuffled together."""

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            found = f"{self.images.dtype} of {self.images.ndim} dimensions"
            raise InputError(f"images must be uint8, n x c x h x w, not {found}: convert them first")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            found = f"{self.labels.dtype} of shape {tuple(self.labels.shape)}"
            raise InputError(f"labels must be int64, one for each of {len(self.images)} images, not {found}")
        if not self.images.numel():
            raise InputError("a split without images cannot be used: add images to it")

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, index: Tensor | slice) -> Split:
        """Select images by a boolean mask, integer index or slice, in that order. The result has no mixture."""
        return Split(self.images[index], self.labels[index])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named pair of splits over the same classes."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.classes)) < len(self.classes):
            raise InputError(f"{self.name} has two classes of one name: rename one of them")
        if len(self.classes) < 2:
            raise InputError(f"{self.name} has {len(self.classes)} class(es): a classifier needs at least two")
        if self.train.images.shape[1:] != self.test.images.shape[1:]:
            shapes = f"{tuple(self.train.images.shape[1:])} and {tuple(self.test.images.shape[1:])}"
            raise InputError(f"{self.name} has train and test images of shapes {shapes}: resize them alike")
        for part, split in (("train", self.train), ("test", self.test)):
            low, high = int(split.labels.min()), int(split.labels.max())
            if low < 0 or high >= len(self.classes):
                allowed = f"0 to {len(self.classes) - 1}"
                raise InputError(
                    f"{self.name} has {part} labels from {low} to {high}: renumber them to lie in {allowed}"
                )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        c, h, w = self.train.images.shape[1:]
        return c, h, w

    @property
    def augmentation(self) -> Augmentation:
        """The recommended augmentation of this data set."""
        return AUGMENTATION.get(self.name, Augmentation())

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of each channel over the training images, in [0, 1]."""
        return tuple(mean for mean, _ in self._moments)

    @property
    def std(self) -> float:
        """One std for all channels: the data set's entry in `STD`, else the mean of the std of each channel."""
        if self.name in STD:
            return STD[self.name]
        std = sum(std for _, std in self._moments) / len(self._moments)
        if std == 0:
            raise InputError(f"{self.name} has training images of one single colour: check the files")
        return std

    @cached_property
    def _moments(self) -> list[tuple[float, float]]:
        """Mean and std of each channel, from exact integer sums, so that every machine gets the same bits."""
        moments = []
        for channel in self.train.images.unbind(1):
            histogram = torch.bincount(channel.flatten(), minlength=256).tolist()
            n = sum(histogram)
            first = sum(value * count for value, count in enumerate(histogram))
            second = sum(value**2 * count for value, count in enumerate(histogram))
            moments.append((first / (255 * n), math.sqrt(n * second - first**2) / (255 * n)))
        return moments


def validation_split(train: Split, fraction: float = 0.05, seed: int = 0) -> tuple[Split, Split]:
    """Hold out a stratified `fraction` of train. Returns (train, validation); both keep their order."""
    held = stratified(train.labels, fraction, seed)
    return train.select(~held), train.select(held)


def stratified(labels: Tensor, fraction: float, seed: int) -> Tensor:
    """A boolean mask that is true for about `fraction` of each class. It depends only on the labels and the seed.

    In a class of two or more images, it is true for at least one and false for at least one. In a class of one image,
    it is false.
    """
    if not 0 < fraction < 1:
        raise InputError(f"a split by the fraction {fraction} leaves one side empty: choose one between 0 and 1")
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    order = permutation(len(labels), seed)
    for label in labels.unique():
        members = order[labels[order] == label]
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        chosen[members[:count]] = True
    return chosen
