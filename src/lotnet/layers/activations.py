"""Activations that preserve the norm of gradients: each pair of channels is reflected or left as it is."""

import math

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, Shape
from lotnet.frozen.pointwise import FrozenHouseholder, FrozenMaxMin, max_min
from lotnet.kernels import dispatch
from lotnet.layers.base import LipschitzLayer, check_sizes


class MaxMin(LipschitzLayer):
    """MaxMin activation: the larger of channels i and i + c/2 becomes channel i, the smaller channel i + c/2.

    >>> MaxMin()(torch.tensor([1.0, 4.0, 3.0, 2.0]).view(1, 4, 1, 1)).flatten().tolist()
    [3.0, 4.0, 1.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2:
            raise InputError(f"MaxMin takes batches (b, c, ...), not a tensor of shape {tuple(x.shape)}: add the batch")
        if x.shape[1] % 2:
            raise InputError(f"MaxMin pairs channels and cannot take {x.shape[1]}: use an even number of channels")
        return max_min(x)

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        return FrozenMaxMin(dtype, {}, {})


class Householder(LipschitzLayer):
    """Householder activation: `z - 2 v relu(v.z)` on pairs z of channels, `order` times.

    Each step reflects the pairs on one side of a line through the origin. Its normal v is the unit vector
    `(-sin(t/2), cos(t/2))`, with a trainable angle t for each pair. The function is continuous for every angle, and
    1-Lipschitz up to the rounding of v. It starts at t = pi/2, where order one equals `MaxMin`.

    >>> x = torch.randn(2, 6, 4, 4)
    >>> torch.allclose(Householder(6)(x), MaxMin()(x), atol=1e-6)
    True
    """

    def __init__(self, channels: int, order: int = 1) -> None:
        super().__init__()
        check_sizes(channels=channels)
        if channels % 2 or order not in (1, 2):
            raise InputError(
                f"Householder needs an even number of channels and order 1 or 2, not {channels} and {order}"
            )
        self.channels = channels
        # A second reflection along the same line would never do anything, so it starts perpendicular to the first.
        starts = torch.tensor([math.pi / 2, -math.pi / 2])[:order]
        self.angles = nn.Parameter(starts[:, None].repeat(1, channels // 2))

    def normals(self) -> Tensor:  # order, 2, c/2
        return _normals(self.angles)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != self.channels:
            raise InputError(
                f"this Householder activation takes {self.channels} channels, not a tensor of shape {tuple(x.shape)}: "
                "set channels to match"
            )
        return dispatch.reflect(x, self.normals())

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        return FrozenHouseholder(dtype, {}, {"normals": _normals(self.angles.detach().double().cpu())})

    def extra_repr(self) -> str:
        return f"{self.channels}, order={self.angles.shape[0]}"


def _normals(angles: Tensor) -> Tensor:  # order, c/2 -> order, 2, c/2
    half = angles / 2
    return torch.stack((-half.sin(), half.cos()), dim=1)
