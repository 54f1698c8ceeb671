"""Operators that act on parts of an image independently: groups of channels, and phases of a dilated convolution."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.operators.base import Operator


@dataclass(frozen=True)
class Phases:
    """An image as the d_h x d_w images of every d_h-th row and d_w-th column.

    A convolution dilated by d never mixes two phases: on each it is the same convolution, not dilated. `shift` (rows,
    columns) moves the image first. With zeros around it, the image is filled up to a multiple of the dilation, and its
    zeros are cropped again. A periodic image must be a multiple already. Either way no norm grows, and `join` after
    `split` is the shift. If `transposed`, the image is moved back last instead: the transpose of both together.
    """

    dilation: tuple[int, int]
    shift: tuple[int, int] = (0, 0)
    circular: bool = False
    transposed: bool = False

    @staticmethod
    def of(kernel_size: tuple[int, int], dilation: tuple[int, int], circular: bool) -> "Phases":
        """The phases of a convolution aligned like `nn.Conv2d(padding="same")`.

        Tap t of a dilated kernel reads the pixel `d t - floor(d (k - 1) / 2)` away. That is `d (t - (k - 1) // 2)`, as
        the phases have it, less `d // 2` if k is even: the image is shifted by that much first.
        """
        rows, columns = (0 if k % 2 else d // 2 for k, d in zip(kernel_size, dilation, strict=True))
        return Phases(dilation, (rows, columns), circular)

    @property
    def count(self) -> int:
        return self.dilation[0] * self.dilation[1]

    def size(self, height: int, width: int) -> tuple[int, int]:
        """The size of each phase of an image, rounded up."""
        if self.circular:
            return height // self.dilation[0], width // self.dilation[1]
        (dh, dw), (down, right) = self.dilation, self.shift
        return -(-(height + down) // dh), -(-(width + right) // dw)

    def split(self, x: Tensor) -> Tensor:  # b c h w -> d d b, c, h/d, w/d
        (dh, dw), (down, right) = self.dilation, (0, 0) if self.transposed else self.shift
        b, c, height, width = x.shape
        h, w = self.size(height, width)
        if self.circular:
            x = x.roll((down, right), dims=(2, 3)) if down or right else x
        elif border := _border(right, w * dw - width - right, down, h * dh - height - down):
            x = F.pad(x, border)
        if _pixels_first(x):
            parts = x.permute(2, 3, 1, 0).view(h, dh, w, dw, c, b).permute(0, 2, 4, 1, 3, 5)
            return parts.reshape(h, w, c, dh * dw * b).permute(3, 2, 0, 1)
        return x.reshape(b, c, h, dh, w, dw).permute(3, 5, 0, 1, 2, 4).reshape(dh * dw * b, c, h, w)

    def join(self, y: Tensor, height: int, width: int) -> Tensor:  # d d b, c, h, w -> b c height width
        (dh, dw), (down, right) = self.dilation, self.shift if self.transposed else (0, 0)
        phases, c, h, w = y.shape
        b = phases // self.count
        if _pixels_first(y):
            parts = y.permute(2, 3, 1, 0).unflatten(3, (dh, dw, b)).permute(0, 3, 1, 4, 2, 5)
            y = parts.reshape(h * dh, w * dw, c, b).permute(3, 2, 0, 1)
        else:
            y = y.reshape(dh, dw, b, c, h, w).permute(2, 3, 4, 0, 5, 1).reshape(b, c, h * dh, w * dw)
        if self.circular:
            return y.roll((-down, -right), dims=(2, 3)) if down or right else y
        return y[..., down : down + height, right : right + width]


def _border(*pixels: int) -> tuple[int, ...] | None:
    """The argument of `F.pad`, which would copy the image if there was nothing to add."""
    return pixels if any(pixels) else None


def _pixels_first(x: Tensor) -> bool:
    """Whether the batch is last in memory, as in the results of `linalg.fourier`: then copies keep it last.

    The gradient of a view is copied in the order of that view, so those below have the batch last, too.
    """
    return x.stride(0) == 1 and x.shape[0] > 1


@dataclass(frozen=True, eq=False)
class Dilated(Operator):
    """The same operator on each phase of the image."""

    inner: Operator
    phases: Phases

    def apply(self, x: Tensor) -> Tensor:
        parts = self.phases.split(self.inner.arranged(x))
        return self.phases.join(self.inner.apply(parts), x.shape[-2], x.shape[-1])

    def tensors(self) -> tuple[Tensor, ...]:
        return self.inner.tensors()

    def with_tensors(self, tensors: Sequence[Tensor]) -> Self:
        return replace(self, inner=self.inner.with_tensors(tensors))

    def norm_matrices(self) -> Tensor | None:
        return self.inner.norm_matrices()

    def adjoint(self, in_channels: int) -> "Dilated":
        phases = replace(self.phases, transposed=not self.phases.transposed)
        return Dilated(self.inner.adjoint(in_channels), phases)


@dataclass(frozen=True, eq=False)
class Grouped(Operator):
    """An operator for each of equal, consecutive groups of channels."""

    groups: tuple[Operator, ...]

    def apply(self, x: Tensor) -> Tensor:
        parts = x.chunk(len(self.groups), dim=1)
        return torch.cat([group.apply(part) for group, part in zip(self.groups, parts, strict=True)], dim=1)

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for group in self.groups for tensor in group.tensors())

    def with_tensors(self, tensors: Sequence[Tensor]) -> Self:
        left = list(tensors)
        made = []
        for group in self.groups:
            count = len(group.tensors())
            made.append(group.with_tensors(left[:count]))
            left = left[count:]
        return replace(self, groups=tuple(made))

    def norm_matrices(self) -> Tensor | None:
        """Those of all groups: the norm of a direct sum is the largest of its parts."""
        known = [matrices for group in self.groups if (matrices := group.norm_matrices()) is not None]
        return torch.cat(known) if len(known) == len(self.groups) else None

    def adjoint(self, in_channels: int) -> "Grouped":
        return Grouped(tuple(group.adjoint(in_channels // len(self.groups)) for group in self.groups))
