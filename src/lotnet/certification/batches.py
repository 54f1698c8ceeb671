"""How many images are in memory at a time."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Protocol

from torch import Tensor

from lotnet.errors import InputError

_USUAL = 250
_NUMBERS = _USUAL * 3 * 64 * 64


class Images(Protocol):
    """Images (n, c, h, w) with pixels in [0, 1]: a tensor, or an object that reads the images it is asked for.

    `lotnet.data.UnitImages` is one. Its images may be more than fit in memory.
    """

    @property
    def shape(self) -> Sequence[int]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor | slice, /) -> Tensor: ...


def usual_batch(shape: Sequence[int], asked: int | None = None) -> int:
    """Batch size for images of this shape: `asked`, or else 250, and fewer for more than 3 x 64 x 64 numbers each."""
    if asked is None:
        return max(1, min(_USUAL, _NUMBERS // prod(shape)))
    if asked < 1:
        raise InputError(f"a batch holds at least one image, not {asked}: give a larger batch_size")
    return asked


def batches(count: int, size: int) -> Iterator[slice]:
    """Slices of `size` that together cover `count` images in order; the last one may be shorter."""
    return (slice(start, start + size) for start in range(0, count, size))
