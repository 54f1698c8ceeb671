"""Activations that preserve the norm of gradients: they reflect, sort or fold channels."""

import math

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.activations import FrozenGroupSort, FrozenLeakyReLU, group_sort
from lotnet.frozen.base import FrozenModule, Shape
from lotnet.frozen.pointwise import FrozenHouseholder, FrozenMaxMin, max_min
from lotnet.kernels import dispatch
from lotnet.layers.base import LipschitzLayer, check_floating, check_sizes


class MaxMin(LipschitzLayer):
    """MaxMin activation: the larger of channels i and i + c/2 becomes channel i, the smaller channel i + c/2.

    >>> MaxMin()(torch.tensor([1.0, 4.0, 3.0, 2.0]).view(1, 4, 1, 1)).flatten().tolist()
    [3.0, 4.0, 1.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        _check_batch(x, "MaxMin")
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
        check_floating(x)
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


class GroupSort(LipschitzLayer):
    """Sort each group of `size` channels, largest first; group g has the channels g, g + c/size, g + 2 c/size, ...

    With size 2 it is `MaxMin`.

    >>> GroupSort(4)(torch.tensor([1.0, 4.0, 3.0, 2.0]).view(1, 4, 1, 1)).flatten().tolist()
    [4.0, 3.0, 2.0, 1.0]
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        check_sizes(size=size)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        check_floating(x)
        if x.ndim < 2 or x.shape[1] % self.size:
            raise InputError(
                f"GroupSort({self.size}) takes batches (b, c, ...) with channels divisible by {self.size}, not a "
                f"tensor of shape {tuple(x.shape)}: choose a size that divides the channels"
            )
        return group_sort(x, self.size)

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        return FrozenGroupSort(dtype, {"size": self.size}, {})

    def extra_repr(self) -> str:
        return f"{self.size}"


class FullSort(LipschitzLayer):
    """Sort all channels of each pixel, or all features of each vector, largest first.

    >>> FullSort()(torch.tensor([[1.0, 3.0, 2.0]])).tolist()
    [[3.0, 2.0, 1.0]]
    """

    def forward(self, x: Tensor) -> Tensor:
        _check_batch(x, "FullSort")
        return group_sort(x, x.shape[1])

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        return FrozenGroupSort(dtype, {"size": shape[0]}, {})


class Abs(LipschitzLayer):
    """Absolute value of the first `fraction` of the channels; the others stay as they are.

    >>> Abs(0.5)(torch.tensor([[-1.0, -2.0]])).tolist()
    [[1.0, -2.0]]
    """

    def __init__(self, fraction: float = 1.0) -> None:
        super().__init__()
        if not 0 < fraction <= 1:
            raise InputError(f"Abs folds a fraction of the channels, above 0 and at most 1, not {fraction}: try 0.5")
        self.fraction = fraction

    def forward(self, x: Tensor) -> Tensor:
        _check_batch(x, "Abs")
        folded = self._folded(x.shape[1])
        return torch.cat((x[:, :folded].abs(), x[:, folded:]), dim=1)

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        slope = torch.ones(shape[0])
        slope[: self._folded(shape[0])] = -1
        return FrozenLeakyReLU(dtype, {}, {"slope": slope})

    def _folded(self, channels: int) -> int:
        return math.ceil(self.fraction * channels)

    def extra_repr(self) -> str:
        return f"{self.fraction}"


def _check_batch(x: Tensor, name: str) -> None:
    check_floating(x)
    if x.ndim < 2:
        raise InputError(f"{name} takes batches (b, c, ...), not a tensor of shape {tuple(x.shape)}: add the batch")


def _normals(angles: Tensor) -> Tensor:  # order, c/2 -> order, 2, c/2
    half = angles / 2
    return torch.stack((-half.sin(), half.cos()), dim=1)
