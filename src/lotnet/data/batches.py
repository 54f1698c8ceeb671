"""Batches made on the device: the whole split lies there as uint8, a batch is a few tensor operations.

Invariants:

* a batch holds pixels in [0, 1], each exactly level / 255 rounded once where the image is not distorted;
* the order of an epoch depends only on (seed, epoch), the changes of sample n only on (seed, epoch, n):
  the global batches are the same for any number of processes, on any device, and from any step resumed at (distorted
  images up to rounding);
* `batch_size` is that of the GLOBAL batch; process r of w takes the r-th of w contiguous shares of every one:
  the shares, joined in order of rank, are the global batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.data.augment import distorted
from lotnet.data.counter_rng import below, permutation
from lotnet.data.dataset import Split
from lotnet.errors import InputError

_ORDER, _ROW, _COLUMN, _FLIP, _DISTORT = range(5)


class Batches:
    """Epochs of (images, labels) from one split.

    Training: `Batches(train, 256, seed=s, padding=a.padding, flip=a.flip, drop_last=True)`.
    Measuring, every image once and in order: `Batches(test, 256, augment=False, shuffle=False)`.
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        seed: int = 0,
        augment: bool = True,
        padding: int = 4,
        flip: bool = True,
        distort: bool = False,
        shuffle: bool = True,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        """Move the split to the device.

        `augment` turns `padding` (crops of the image framed by so many zeros), `flip` and `distort` (shapes and
        colours) on or off together.
        `drop_last` leaves out a last batch that is not full; without it the processes' shares of that batch
        may differ by one image, and be empty.
        """
        if batch_size < 1 or batch_size % world_size:
            raise InputError(f"the batch size {batch_size} must be a positive multiple of {world_size} processes")
        if drop_last and len(split) < batch_size:
            raise InputError(f"{len(split)} images do not fill one batch of {batch_size}: lower the batch size")
        self._images = split.images.to(device)
        self._labels = split.labels.to(device)
        self._batch_size = batch_size
        self._seed = seed
        self._padding = padding if augment else 0
        self._flip = flip and augment
        self._distort = distort and augment
        self._shuffle = shuffle
        self._dtype = dtype
        self._rank = rank
        self._world_size = world_size
        self._drop_last = drop_last

    def __len__(self) -> int:
        """Batches in an epoch, the same for every process."""
        full, rest = divmod(len(self._labels), self._batch_size)
        return full + bool(rest and not self._drop_last)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's shares of the batches of an epoch, from `start_step` on."""
        device, size = self._labels.device, len(self._labels)
        order = torch.arange(size, device=device)
        if self._shuffle:
            order = permutation(size, self._seed, epoch, _ORDER, device=device)
        # Drawn for the whole epoch at once: a few large kernels in place of many small ones.
        places = 2 * self._padding + 1
        row = below(places, order, self._seed, epoch, _ROW)
        column = below(places, order, self._seed, epoch, _COLUMN)
        mirrored = below(1 + self._flip, order, self._seed, epoch, _FLIP)
        drawn = torch.stack([order, row, column, mirrored])
        for step in range(start_step, len(self)):
            batch = drawn[:, step * self._batch_size : (step + 1) * self._batch_size]
            samples, *place = batch.tensor_split(self._world_size, dim=1)[self._rank].unbind()
            # index_select copies whole images; advanced indexing would go byte by byte on a CPU.
            images = self._images.index_select(0, samples)
            if self._padding or self._flip:
                images = crop(images, self._padding, *place)
            pixels = to_unit(images, self._dtype)
            if self._distort:
                pixels = distorted(pixels, samples, self._seed, epoch, _DISTORT)
            yield pixels, self._labels[samples]


def crop(images: Tensor, padding: int, row: Tensor, column: Tensor, mirrored: Tensor) -> Tensor:
    """Each image (b c h w) framed by `padding` zeros, cut out at its (row, column), then mirrored or not.

    The last three hold one integer per image: two from 0 to 2 `padding`, and 0 or 1.
    """
    b, c, h, w = images.shape
    framed = F.pad(images, (padding,) * 4).flatten(2)
    down, across = torch.arange(h, device=images.device), torch.arange(w, device=images.device)
    y = row[:, None] + down  # b h
    x = column[:, None] + torch.where(mirrored[:, None] == 1, w - 1 - across, across)  # b w
    pixel = (y[:, :, None] * (w + 2 * padding) + x[:, None, :]).reshape(b, 1, h * w)
    return framed.gather(2, pixel.expand(b, c, h * w)).view(images.shape)


def to_unit(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """uint8 levels as level / 255 in [0, 1], the only way this package makes pixels of them."""
    # A tensor divides: CUDA turns division by a number into a product with its reciprocal, rounding twice.
    return images / torch.full((), 255, dtype=dtype, device=images.device)
