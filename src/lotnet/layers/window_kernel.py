"""A strided convolution as a convolution of windows, which is how orthogonal layers stride."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Axis:
    """The arguments of a plain convolution along one axis; a padding of -1 stands for "same"."""

    kernel_size: int
    stride: int
    dilation: int
    padding: int

    def offsets(self) -> list[int]:
        """How far from its window's first pixel an output reads at each tap; centred if padding changes the size."""
        reach = self.dilation * (self.kernel_size - 1)
        keeps_size = self.padding >= 0 and 0 <= 2 * self.padding - reach + self.stride - 1 < self.stride
        start = self.padding if keeps_size else reach // 2
        return [self.dilation * t - start for t in range(self.kernel_size)]

    def size(self) -> int:
        """The fewest taps on windows that reach as far, with the alignment of `nn.Conv2d(padding="same")`."""
        if self.stride == 1:
            return self.kernel_size
        windows = [offset // self.stride for offset in self.offsets()]
        before, after = max(0, -windows[0]), max(0, windows[-1])
        return 2 * before + 1 if before >= after else 2 * after

    def places(self) -> list[tuple[int, int]]:
        """The tap on windows, and the pixel in its window, of each tap."""
        centre = (self.size() - 1) // 2
        if self.stride == 1:
            return [(t, 0) for t in range(self.kernel_size)]
        return [(offset // self.stride + centre, offset % self.stride) for offset in self.offsets()]


def window_kernel(kernel: Tensor, axes: Sequence[Axis]) -> tuple[Tensor, tuple[int, ...]]:
    """The free kernel, o x (i r s) x taps, of an orthogonal layer that starts as this convolution; and its dilation.

    At stride one it is the kernel itself. A dilation with a stride becomes zeros between the taps.
    """
    sizes, strides = [axis.size() for axis in axes], [axis.stride for axis in axes]
    o, i = kernel.shape[:2]
    windows = kernel.new_zeros(o, i, math.prod(strides), *sizes)
    places = [axis.places() for axis in axes]
    for taps in product(*(range(axis.kernel_size) for axis in axes)):
        found = [place[t] for place, t in zip(places, taps, strict=True)]
        pixel = 0
        for (_, inside), stride in zip(found, strides, strict=True):
            pixel = pixel * stride + inside
        place: Any = (..., *taps)
        index: Any = (..., pixel, *(tap for tap, _ in found))
        windows[index] += kernel[place]
    dilation = tuple(axis.dilation if axis.stride == 1 else 1 for axis in axes)
    return windows.flatten(1, 2), dilation
