"""Frozen modules that only move entries: channels to windows, and channels shifted by pixels."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.frozen.base import Exact, Shape, Size
from lotnet.frozen.pointwise import StrideSpec
from lotnet.records import WrongType


def channels_to_windows(x: Tensor, stride: int) -> Tensor:  # b c*s*s h w -> b c h*s w*s
    """`F.pixel_shuffle`, for empty batches too: the inverse of `windows_to_channels`."""
    b, c, h, w = x.shape
    channels = c // stride**2
    windows = x.reshape(b, channels, stride, stride, h, w).permute(0, 1, 4, 2, 5, 3)
    return windows.reshape(b, channels, h * stride, w * stride)


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
    """Turn each s^2 channels into an s x s window."""

    Spec = StrideSpec
    INPUT = "ssc h w"
    spec: StrideSpec

    def sizes(self) -> dict[str, int]:
        return {"s": self.spec.stride}

    def forward(self, x: Tensor) -> Tensor:
        return channels_to_windows(x, self.spec.stride)

    def output_shape(self, shape: Shape) -> Shape:
        c, h, w = shape
        s = self.spec.stride
        return (c // s**2, h * s, w * s)


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
