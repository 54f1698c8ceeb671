"""Operators that are a spatial kernel, or a power series of one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch.nn.functional as F
from torch import Tensor

from lotnet.operators.base import Operator


@dataclass(frozen=True, eq=False)
class Kernel(Operator):
    """A spatial kernel, aligned like `nn.Conv2d(padding="same")`, dilated by (rows, columns).

    With circular padding the image is periodic; with zeros it has zeros around it. `extra` zeros (rows, columns) are
    appended at the bottom and right before the convolution, and cropped after it. ECO uses them to make the sides
    multiples of the kernel size.
    """

    kernel: Tensor  # o i kh kw
    padding_mode: Literal["zeros", "circular"] = "zeros"
    dilation: tuple[int, int] = (1, 1)
    extra: tuple[int, int] = (0, 0)

    def apply(self, x: Tensor) -> Tensor:
        return F.conv2d(self.pad(x), self.kernel, dilation=self.dilation)[..., : x.shape[-2], : x.shape[-1]]

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.kernel,)

    def with_tensors(self, tensors: Sequence[Tensor]) -> Self:
        return replace(self, kernel=tensors[0])

    def adjoint(self, in_channels: int) -> "Kernel":
        """Flipped taps read the opposite pixels, and appending zeros is the transpose of cropping them.

        The centre of k flipped taps is tap `k // 2`. It is the centre again after a zero is appended to an even number.
        """
        kh, kw = self.kernel.shape[-2:]
        flipped = self.kernel.transpose(0, 1).flip(2, 3)
        return replace(self, kernel=F.pad(flipped, (0, 1 - kw % 2, 0, 1 - kh % 2)))

    def norm_matrices(self) -> Tensor | None:
        one_tap = self.kernel.shape[-2:] == (1, 1)
        return self.kernel[None, :, :, 0, 0] if one_tap else None

    def pad(self, x: Tensor) -> Tensor:
        """Pad the image with the border that a convolution without padding consumes."""
        if self.extra != (0, 0):
            x = F.pad(x, (0, self.extra[1], 0, self.extra[0]))
        kh, kw = self.kernel.shape[-2:]
        dh, dw = self.dilation
        top, left = dh * ((kh - 1) // 2), dw * ((kw - 1) // 2)
        border = (left, dw * (kw - 1) - left, top, dh * (kh - 1) - top)
        if border == (0, 0, 0, 0):  # `F.pad` would copy the image
            return x
        return F.pad(x, border, mode="circular" if self.padding_mode == "circular" else "constant")


@dataclass(frozen=True, eq=False)
class Series(Operator):
    """The truncated exponential `x + A x + ... + A^terms x / terms!` of a convolution `A` with a skew kernel.

    Channels are filled with zeros up to the kernel's, and the output keeps the first `out_channels`.
    """

    skew: Kernel
    terms: int
    out_channels: int

    def apply(self, x: Tensor) -> Tensor:
        channels = self.skew.kernel.shape[0]
        x = F.pad(x, (0, 0, 0, 0, 0, channels - x.shape[1]))
        return truncated_exponential(x, self.skew.apply, self.terms)[:, : self.out_channels]

    def tensors(self) -> tuple[Tensor, ...]:
        return self.skew.tensors()

    def with_tensors(self, tensors: Sequence[Tensor]) -> Self:
        return replace(self, skew=self.skew.with_tensors(tensors))

    def adjoint(self, in_channels: int) -> "Series":
        return replace(self, skew=self.skew.adjoint(in_channels), out_channels=in_channels)


def truncated_exponential(x: Tensor, apply: Callable[[Tensor], Tensor], terms: int) -> Tensor:
    """`x + A x + ... + A^terms x / terms!`, term by term."""
    total = term = x
    for j in range(1, terms + 1):
        term = apply(term) / j
        total = total + term
    return total
