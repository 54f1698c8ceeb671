"""Pools other than windows' averages and maxima: whole images, and l2 norms."""

import math

import torch
from torch import Tensor

from lotnet.frozen.base import FrozenModule, Shape
from lotnet.frozen.pointwise import image_settings, pixel_axes
from lotnet.frozen.pooling import FrozenGlobalAveragePool, FrozenNormPool
from lotnet.layers.base import LipschitzLayer, check_sizes
from lotnet.layers.structure import check_images, check_pool


class GlobalAveragePool(LipschitzLayer):
    """Sum of each channel over its n pixels, divided by sqrt(n): the largest scale at which it is 1-Lipschitz.

    Images of any size become 1 x 1, and sequences of any length get the length 1.

    >>> GlobalAveragePool()(torch.ones(1, 1, 2, 8)).item()
    4.0
    """

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, "GlobalAveragePool", sequences=True)
        return x.sum(dim=pixel_axes(x), keepdim=True) / math.sqrt(math.prod(x.shape[2:]))

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        scale = torch.tensor(1 / math.sqrt(math.prod(shape[1:])), dtype=torch.float64)
        return FrozenGlobalAveragePool(dtype, image_settings(shape), {"scale": scale})


class NormPool(LipschitzLayer):
    """The l2 norm of each size x size window of a channel; the gradient of a window of zeros is zero.

    Windows are disjoint. Rows and columns that fill no window are left out.

    >>> NormPool(2)(torch.full((1, 1, 2, 2), -3.0)).item()
    6.0
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        check_sizes(size=size)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, "NormPool")
        check_pool(x, self.size)
        windows = x.unfold(2, self.size, self.size).unfold(3, self.size, self.size)
        return torch.linalg.vector_norm(windows, dim=(-2, -1))

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        return FrozenNormPool(dtype, {"height": self.size, "width": self.size}, {})

    def extra_repr(self) -> str:
        return f"size={self.size}"


class GlobalNormPool(LipschitzLayer):
    """The l2 norm of each channel over all its pixels; the gradient of a channel of zeros is zero.

    >>> GlobalNormPool()(torch.ones(1, 1, 2, 8)).item()
    4.0
    """

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, "GlobalNormPool")
        return torch.linalg.vector_norm(x, dim=(2, 3), keepdim=True)

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        return FrozenNormPool(dtype, {"height": shape[1], "width": shape[2]}, {})
