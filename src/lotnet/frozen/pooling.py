"""Frozen pools: sums over whole images, and l2 norms of windows."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from lotnet.frozen.base import FrozenModule, ImageSize, Shape
from lotnet.frozen.pointwise import pixel_axes
from lotnet.linalg.roundoff import Upper, rounding_error


class FrozenGlobalAveragePool(FrozenModule):
    """The sum over all pixels of a channel times `scale`, which is near `1 / sqrt(pixels)`.

    Each output is the inner product of one channel with a vector of norm `scale sqrt(pixels)`. Channels are disjoint,
    so that norm is the Lipschitz constant, attained by constant images.
    """

    Spec = ImageSize
    TENSORS: ClassVar[Mapping[str, str]] = {"scale": ""}
    INPUT = "c ..."
    spec: ImageSize

    scale: Tensor  # ()

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(dim=pixel_axes(x), keepdim=True) * self.scale

    def _prove_lipschitz(self) -> Upper:
        return Upper(self.spec.pixels).sqrt() * abs(float(self.scale))

    def _local_error(self, norm: Upper) -> Upper:
        """An entry takes part in at most `pixels - 1` additions and one product."""
        return rounding_error(self.spec.pixels, self.lipschitz_bound() * norm, self.precision)

    def output_shape(self, shape: Shape) -> Shape:
        return (shape[0], *(1 for _ in shape[1:]))

    def fits(self, shape: Shape) -> bool:
        return super().fits(shape) and len(shape) > 1 and math.prod(shape[1:]) == self.spec.pixels


class FrozenNormPool(FrozenModule):
    """The l2 norm of disjoint windows of `height` x `width` pixels, for each channel.

    It is 1-Lipschitz, because `| ||a|| - ||b|| | <= ||a - b||` in each window, and keeps the norm of what the windows
    cover. Its slope has norm one except at zero.
    """

    Spec = ImageSize  # of a window
    INPUT = "c a b"
    spec: ImageSize

    def forward(self, x: Tensor) -> Tensor:
        b, c, _, _ = x.shape
        _, rows, columns = self.output_shape(x.shape[1:])
        h, w = self.spec.height, self.spec.width
        windows = x[..., : rows * h, : columns * w].reshape(b, c, rows, h, columns, w)
        return windows.square().sum(dim=(3, 5)).sqrt()

    def _prove_lipschitz(self) -> Upper:
        return Upper(1)

    def _local_error(self, norm: Upper) -> Upper:
        """The sum S of n squares is known up to `g_n S`, since no term is negative, and up to its underflow.

        So its root errs by `g_n sqrt S`, since `|sqrt(1 + e) - 1| <= |e|`, plus the root of the underflow, and is
        rounded once more: the square root is one of IEEE's basic operations. Together `g_{n+1}` times the norm of the
        window. A square below the normal range errs by at most `tiny`, and a tensor has fewer than 2^40 entries, so the
        roots of all underflow are below `sqrt(2^40 tiny)` in l2. The squares must not overflow.
        """
        limits = torch.finfo(self.precision)
        if not norm * norm <= limits.max / 4:
            return Upper(math.inf)
        underflow = (Upper(2**42) * limits.tiny).sqrt()
        return rounding_error(self.spec.pixels + 1, norm, self.precision) + underflow

    def output_shape(self, shape: Shape) -> Shape:
        c, h, w = shape
        return (c, h // self.spec.height, w // self.spec.width)

    def fits(self, shape: Shape) -> bool:
        return super().fits(shape) and shape[1] >= self.spec.height and shape[2] >= self.spec.width
