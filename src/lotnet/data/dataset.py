"""Data sets, and how they are split.

Invariants:

* images are uint8, n x c x h x w, with n at least one. Train and test images have the same shape. They lie in memory
  or, if they are many, in a file (`StoredImages`);
* labels are int64 in [0, number of classes). There are at least two classes, with different names;
* the statistics for the model's `Normalize` come from the training images: one mean per channel, and one std for all
  channels, for pixels in [0, 1];
* validation images are a stratified part of the training images. No choice is made by test images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from lotnet.data.counter_rng import permutation
from lotnet.data.mixture import Mixture
from lotnet.data.stored import Index, StoredImages
from lotnet.errors import InputError

_CHUNK = 16 * 2**20
"""Bytes that `Split.chunks` reads at a time."""


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


@dataclass(frozen=True, eq=False)
class Split:
    """Images and their labels. The constructor checks both."""

    pixels: Tensor | StoredImages  # n c h w, uint8
    labels: Tensor  # n, int64
    mixture: Mixture | None = None
    """How training batches are composed; by default all images are shuffled together."""

    def __post_init__(self) -> None:
        pixels, count = self.pixels, len(self.pixels)
        if isinstance(pixels, Tensor) and (pixels.dtype != torch.uint8 or pixels.ndim != 4):
            found = f"{pixels.dtype} of {pixels.ndim} dimensions"
            raise InputError(f"images must be uint8, n x c x h x w, not {found}: convert them first")
        if self.labels.dtype != torch.int64 or self.labels.shape != (count,):
            found = f"{self.labels.dtype} of shape {tuple(self.labels.shape)}"
            raise InputError(f"labels must be int64, one for each of {count} images, not {found}")
        if not pixels.nbytes:
            raise InputError("a split without images cannot be used: add images to it")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def images(self) -> Tensor:
        """All images as one tensor. Images in a file are read into memory: `read` and `chunks` read a part of them."""
        return self.pixels if isinstance(self.pixels, Tensor) else self.pixels.read()

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        c, h, w = self.pixels.shape[-3:]
        return c, h, w

    def read(self, index: Index) -> Tensor:
        """The chosen images as a tensor, in that order."""
        return self.pixels[index] if isinstance(self.pixels, Tensor) else self.pixels.read(index)

    def image(self, n: int) -> Tensor:  # c h w
        return self.read(slice(n, n + 1))[0]

    def chunks(self) -> Iterator[Tensor]:
        """All images in order, some megabytes at a time."""
        step = max(1, _CHUNK // prod(self.shape))
        for start in range(0, len(self), step):
            yield self.read(slice(start, start + step))

    def select(self, index: Index) -> Split:
        """Select images by a boolean mask, integer index or slice, in that order. The result has no mixture."""
        pixels = self.pixels[index] if isinstance(self.pixels, Tensor) else self.pixels.select(index)
        return Split(pixels, self.labels[index])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named pair of splits over the same classes."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    augmentation: Augmentation = Augmentation()
    """The usual augmentation. The default is for natural images."""
    published_std: float | None = None
    """The standard deviation that papers use; by default it is computed as it was for CIFAR-10."""
    limit: int | None = None
    """Number of images that the splits were reduced to, if they were."""

    def __post_init__(self) -> None:
        if len(set(self.classes)) < len(self.classes):
            raise InputError(f"{self.name} has two classes of one name: rename one of them")
        if len(self.classes) < 2:
            raise InputError(f"{self.name} has {len(self.classes)} class(es): a classifier needs at least two")
        if self.train.shape != self.test.shape:
            shapes = f"{self.train.shape} and {self.test.shape}"
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
        return self.train.shape

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of each channel over the training images, in [0, 1]."""
        return tuple(mean for mean, _ in self._moments)

    @property
    def std(self) -> float:
        """One std for all channels: the published one, else the mean of the std of each channel."""
        if self.published_std is not None:
            return self.published_std
        std = sum(std for _, std in self._moments) / len(self._moments)
        if std == 0:
            raise InputError(f"{self.name} has training images of one single colour: check the files")
        return std

    @property
    def largest_level(self) -> int:
        """The largest level of the training images, of 255."""
        return int(self._histograms.sum(0).nonzero().max())

    @cached_property
    def _histograms(self) -> Tensor:  # c 256
        """How often each level occurs in each channel of the training images."""
        histograms = torch.zeros(self.shape[0], 256, dtype=torch.int64)
        for images in self.train.chunks():
            for channel, histogram in zip(images.unbind(1), histograms, strict=True):
                histogram += torch.bincount(channel.flatten(), minlength=256)
        return histograms

    @cached_property
    def _moments(self) -> list[tuple[float, float]]:
        """Mean and std of each channel, from exact integer sums, so that every machine gets the same bits."""
        moments = []
        for histogram in self._histograms.tolist():
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
