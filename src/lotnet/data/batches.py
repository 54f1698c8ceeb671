"""Batches that are made on the device: the whole split lies there as uint8, so no worker processes are needed.

Images in a file that are too many for that are read batch by batch.

Invariants:

* pixels lie in [0, 1]. In an image that is not distorted, each is level / 255, rounded once;
* the order of an epoch depends only on (seed, epoch), and the augmentation of sample n only on (seed, epoch, n), and on
  how often it was used before in that epoch. So
  the global batches are the same for any number of processes, on any device, and after resuming at any step
  (distorted images are the same up to rounding);
* `batch_size` is the size of the global batch, over all processes. Each process takes one contiguous shard; the
  shards, joined in order of rank, are the global batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.data.augment import distort
from lotnet.data.counter_rng import permutation, randint
from lotnet.data.dataset import Augmentation, Split
from lotnet.data.randaugment import rand_augment
from lotnet.data.stored import StoredImages
from lotnet.errors import InputError

RESIDENT = 64 * 2**20
"""Images in a file stay there if they have more bytes than this, otherwise they are read once."""

_ORDER, _ROW, _COLUMN, _FLIP, _DISTORT, _RANDAUGMENT = range(6)


@dataclass(frozen=True)
class Shard:
    """The part of every global batch that one process takes: part `rank` of `world_size`."""

    rank: int = 0
    world_size: int = 1


class Batches:
    """Epochs of (images, labels) from one split.

    For training: `Batches(train, 256, seed=0, augmentation=dataset.augmentation, drop_last=True)`.
    For evaluation, with every image once and in order: `Batches(test, 256)`.
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        seed: int | None = None,
        augmentation: Augmentation | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        shard: Shard = Shard(),  # noqa: B008 (immutable)
        drop_last: bool = False,
    ) -> None:
        """Move the split to the device.

        `seed` determines the order of the images in each epoch, and their augmentation. Without a seed the images keep
        their order. With one, the split's `mixture` composes the batches, if it has one. `drop_last` leaves out a last
        batch that is not full. Without `drop_last`, the shards of that batch may differ in size by one image, and may
        be empty.
        """
        if batch_size < 1 or batch_size % shard.world_size:
            raise InputError(f"the batch size {batch_size} must be a positive multiple of {shard.world_size} processes")
        self._mixture = split.mixture if seed is not None else None
        self._steps = self._mixture.steps(batch_size) if self._mixture else None
        if drop_last and len(split) < batch_size:
            raise InputError(f"{len(split)} images do not fill one batch of {batch_size}: lower the batch size")
        if augmentation is not None and seed is None:
            raise InputError("batches with augmentation have no seed: give them one, or leave the augmentation out")
        pixels = split.pixels
        if isinstance(pixels, StoredImages) and pixels.nbytes <= RESIDENT:
            pixels = pixels.read()
        self._images = pixels.to(device) if isinstance(pixels, Tensor) else pixels
        self._labels = split.labels.to(device)
        self._batch_size = batch_size
        self._shuffle = seed is not None
        self._seed = seed or 0
        self._augmentation = augmentation or Augmentation(padding=0, flip=False)
        self._dtype = dtype
        self._shard = shard
        self._drop_last = drop_last

    @property
    def images(self) -> int:
        """Number of images of the split."""
        return len(self._labels)

    def __len__(self) -> int:
        """Number of batches in an epoch, the same for every process."""
        if self._steps is not None:
            return self._steps
        full, rest = divmod(len(self._labels), self._batch_size)
        return full + bool(rest and not self._drop_last)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over this process's shards of an epoch's batches, from `start_step` on."""
        change = self._augmentation
        order, key = self._order(epoch)
        # Random numbers for the whole epoch at once: a few large kernels instead of many small ones.
        places = 2 * change.padding + 1
        row = randint(places, key, self._seed, epoch, _ROW)
        column = randint(places, key, self._seed, epoch, _COLUMN)
        mirrored = randint(1 + change.flip, key, self._seed, epoch, _FLIP)
        drawn = torch.stack([order, key, row, column, mirrored])
        for step in range(start_step, len(self)):
            batch = drawn[:, step * self._batch_size : (step + 1) * self._batch_size]
            samples, keys, *place = batch.tensor_split(self._shard.world_size, dim=1)[self._shard.rank].unbind()
            images = self._read(samples)
            if change.padding or change.flip:
                images = crop(images, change.padding, *place)
            if change.randaugment:
                images = rand_augment(images, keys, self._seed, epoch, _RANDAUGMENT)
            pixels = to_unit(images, self._dtype)
            if change.distort:
                pixels = distort(pixels, keys, self._seed, epoch, _DISTORT)
            yield pixels, self._labels[samples]

    def _order(self, epoch: int) -> tuple[Tensor, Tensor]:
        """The images of an epoch in their order, and for each use of an image the index of its random numbers."""
        device, size = self._labels.device, len(self._labels)
        if self._mixture is not None:
            order, before = self._mixture.order(size, self._batch_size, self._seed, epoch, device)
            return order, order + size * before
        if self._shuffle:
            order = permutation(size, self._seed, epoch, _ORDER, device=device)
        else:
            order = torch.arange(size, device=device)
        return order, order

    def _read(self, samples: Tensor) -> Tensor:
        if isinstance(self._images, Tensor):
            # index_select copies whole images. Advanced indexing is slower on a CPU: it copies byte by byte.
            return self._images.index_select(0, samples)
        return self._images.read(samples).to(samples.device)


def crop(images: Tensor, padding: int, row: Tensor, column: Tensor, mirrored: Tensor) -> Tensor:
    """Pad each image (b c h w) with `padding` zeros, crop it at its (row, column), and mirror it if `mirrored` is 1.

    `row` and `column` hold an integer from 0 to 2 `padding` for each image, and `mirrored` holds 0 or 1.
    """
    b, c, h, w = images.shape
    padded = F.pad(images, (padding,) * 4).flatten(2)
    down, across = torch.arange(h, device=images.device), torch.arange(w, device=images.device)
    y = row[:, None] + down  # b h
    x = column[:, None] + torch.where(mirrored[:, None] == 1, w - 1 - across, across)  # b w
    pixel = (y[:, :, None] * (w + 2 * padding) + x[:, None, :]).reshape(b, 1, h * w)
    return padded.gather(2, pixel.expand(b, c, h * w)).view(images.shape)


def to_unit(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Convert uint8 levels to pixels in [0, 1], level / 255. All of lotnet uses this function."""
    # The divisor is a tensor, because CUDA replaces division by a number by a product with its reciprocal. That would
    # round twice.
    return images / torch.full((), 255, dtype=dtype, device=images.device)
