"""Frozen modules that only move entries.

Channels become windows, sequences become columns, channels are shifted or shuffled, and zeros are put around images.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.frozen.base import Exact, Shape, Size
from lotnet.frozen.pointwise import StrideSpec
from lotnet.records import Between, WrongType


def channels_to_windows(x: Tensor, stride: tuple[int, int]) -> Tensor:  # b c*r*s h w -> b c h*r w*s
    """`F.pixel_shuffle` with a stride (rows, columns), for empty batches too: the inverse of `windows_to_channels`."""
    (b, c, h, w), (r, s) = x.shape, stride
    windows = x.reshape(b, c // (r * s), r, s, h, w).permute(0, 1, 4, 2, 5, 3)
    return windows.reshape(b, c // (r * s), h * r, w * s)


def shift_channels(x: Tensor, size: int, padding_mode: Literal["zeros", "circular"]) -> Tensor:
    """Shift each of size x size groups of channels by the offset of its tap in a size x size kernel, size odd.

    Group `size r + c` reads the pixel `(r - size // 2, c - size // 2)` away: a convolution whose kernels are deltas.
    """
    h, w = x.shape[-2:]
    border = (size // 2,) * 4
    padded = F.pad(x, border, mode="circular" if padding_mode == "circular" else "constant")
    groups = padded.tensor_split(size**2, dim=1)
    offsets = product(range(size), range(size))
    return torch.cat([g[..., r : r + h, c : c + w] for g, (r, c) in zip(groups, offsets, strict=True)], dim=1)


@dataclass(frozen=True)
class ShiftsSpec:
    """Shifts within size x size taps."""

    size: Size
    padding_mode: Literal["zeros", "circular"]


class FrozenUpsampling(Exact):
    """Turn each r s channels into an r x s window."""

    Spec = StrideSpec
    INPUT = "rsc h w"
    spec: StrideSpec

    def sizes(self) -> dict[str, int]:
        return dict(zip("rs", self.spec.sides, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        return channels_to_windows(x, self.spec.sides)

    def output_shape(self, shape: Shape) -> Shape:
        (c, h, w), (r, s) = shape, self.spec.sides
        return (c // (r * s), h * r, w * s)


class FrozenToColumn(Exact):
    """Turn a sequence into an image of one column."""

    INPUT = "c n"

    def forward(self, x: Tensor) -> Tensor:
        return x[..., None]

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape, 1)


class FrozenFromColumn(Exact):
    """Turn an image of one column into a sequence."""

    INPUT = "c n 1"

    def forward(self, x: Tensor) -> Tensor:
        return x[..., 0]

    def output_shape(self, shape: Shape) -> Shape:
        return shape[:-1]


@dataclass(frozen=True)
class GroupsSpec:
    groups: Size


class FrozenChannelShuffle(Exact):
    """Channel n of each of g groups becomes channel 1, ..., g of group n, as in `nn.ChannelShuffle`: a permutation."""

    Spec = GroupsSpec
    INPUT = "gc ..."
    spec: GroupsSpec

    def sizes(self) -> dict[str, int]:
        return {"g": self.spec.groups}

    def forward(self, x: Tensor) -> Tensor:
        groups = x.unflatten(1, (self.spec.groups, x.shape[1] // self.spec.groups))
        return groups.transpose(1, 2).flatten(1, 2)

    def output_shape(self, shape: Shape) -> Shape:
        return shape


@dataclass(frozen=True)
class BorderSpec:
    """Pixels before and after each axis, beginning with the last axis, as `F.pad` takes them."""

    border: tuple[Annotated[int, Between(0, 4096)], ...]


class FrozenZeroPad(Exact):
    """Zeros around images or sequences, which keep the norm."""

    Spec = BorderSpec
    INPUT = "c ..."
    spec: BorderSpec

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        if len(self.spec.border) not in (2, 4):
            raise WrongType("border must hold two numbers for each axis")

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.spec.border)

    def output_shape(self, shape: Shape) -> Shape:
        border = self.spec.border
        added = [border[n] + border[n + 1] for n in range(0, len(border), 2)]
        return (shape[0], *(n + more for n, more in zip(shape[1:], reversed(added), strict=True)))

    def fits(self, shape: Shape) -> bool:
        return super().fits(shape) and len(shape) == 1 + len(self.spec.border) // 2


class FrozenChannelShift(Exact):
    """`shift_channels`: with circular padding a permutation, with zeros one that drops what crosses the border."""

    Spec = ShiftsSpec
    INPUT = "c h w"
    spec: ShiftsSpec

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        if self.spec.size % 2 == 0:
            raise WrongType(f"size must be odd, not {self.spec.size}")

    def forward(self, x: Tensor) -> Tensor:
        return shift_channels(x, self.spec.size, self.spec.padding_mode)

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def fits(self, shape: Shape) -> bool:
        size = self.spec.size
        return super().fits(shape) and shape[0] >= size**2 and min(shape[1:]) >= size // 2
