"""PyTorch's own modules: those that can be frozen as they are, and what replaces the others.

The table is closed. A module is looked up by its exact type, because a subclass may compute something else.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.activations import FrozenHardtanh, FrozenLeakyReLU
from lotnet.frozen.base import FrozenModule, Shape
from lotnet.frozen.moves import FrozenUpsampling
from lotnet.frozen.pointwise import FrozenDownsampling, FrozenFlatten, FrozenMaxPool

Stages = list[FrozenModule]


def freeze_plain(module: nn.Module, shape: Shape, dtype: torch.dtype, name: str) -> Stages:
    """The frozen stages of a PyTorch module in `eval()` mode; a module without a proved bound is refused by name."""
    freezer = FREEZERS.get(type(module))
    stages = None if freezer is None else freezer(module, shape, dtype)
    if stages is None:
        raise refusal(module, name)
    return stages


def refusal(module: nn.Module, name: str) -> InputError:
    """The error for a module that lotnet cannot bound: it names the module, and what to use in its place."""
    remedy = REPLACEMENTS.get(type(module), "build the model from nn.Sequential and lotnet layers")
    return InputError(f"{name} is a {type(module).__name__}, for which lotnet has no proved bound: {remedy}")


def _nothing(module: nn.Module, shape: Shape, dtype: torch.dtype) -> Stages:
    return []


def _flatten(module: nn.Flatten, shape: Shape, dtype: torch.dtype) -> Stages | None:
    return [FrozenFlatten(dtype, {}, {})] if (module.start_dim, module.end_dim) == (1, -1) else None


def _relu(module: nn.ReLU, shape: Shape, dtype: torch.dtype) -> Stages | None:
    return None if module.inplace else [leaky_relu(torch.zeros(shape[0]), dtype)]


def _leaky_relu(module: nn.LeakyReLU, shape: Shape, dtype: torch.dtype) -> Stages | None:
    if module.inplace or not abs(module.negative_slope) <= 1:
        return None
    return [leaky_relu(torch.full((shape[0],), module.negative_slope, dtype=torch.float64), dtype)]


def leaky_relu(slope: Tensor, dtype: torch.dtype) -> FrozenLeakyReLU:  # c
    return FrozenLeakyReLU(dtype, {}, {"slope": slope})


def _hardtanh(module: nn.Hardtanh, shape: Shape, dtype: torch.dtype) -> Stages | None:
    if module.inplace or not module.min_val <= 0 <= module.max_val:
        return None
    low, high = (torch.tensor(value, dtype=torch.float64) for value in (module.min_val, module.max_val))
    return [FrozenHardtanh(dtype, {}, {"low": low, "high": high})]


def _max_pool(module: nn.MaxPool2d, shape: Shape, dtype: torch.dtype) -> Stages | None:
    windows = {*_pair(module.kernel_size), *_pair(module.stride)}
    others = (*_pair(module.padding), *(n - 1 for n in _pair(module.dilation)), module.ceil_mode, module.return_indices)
    if len(windows) > 1 or any(others):
        return None
    return [FrozenMaxPool(dtype, {"size": windows.pop()}, {})]


def _pair(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _unshuffle(module: nn.PixelUnshuffle, shape: Shape, dtype: torch.dtype) -> Stages | None:
    return [FrozenDownsampling(dtype, {"stride": module.downscale_factor}, {})]


def _shuffle(module: nn.PixelShuffle, shape: Shape, dtype: torch.dtype) -> Stages | None:
    return [FrozenUpsampling(dtype, {"stride": module.upscale_factor}, {})]


FREEZERS: dict[type[nn.Module], Callable[[Any, Shape, torch.dtype], Stages | None]] = {
    nn.Identity: _nothing,
    nn.Flatten: _flatten,
    nn.ReLU: _relu,
    nn.LeakyReLU: _leaky_relu,
    nn.Hardtanh: _hardtanh,
    nn.ReLU6: _hardtanh,
    nn.Dropout: _nothing,
    nn.Dropout1d: _nothing,
    nn.Dropout2d: _nothing,
    nn.MaxPool2d: _max_pool,
    nn.PixelUnshuffle: _unshuffle,
    nn.PixelShuffle: _shuffle,
}
"""How a module is frozen. None stands for arguments that no bound covers."""

_SMOOTH = "its slope exceeds one, or nobody has proved how it rounds, so use MaxMin, Householder, GroupSort or nn.ReLU"
_IN_PLACE = "use it without inplace=True, because a residual reads its own input again"

_NORM = (
    "it divides by a standard deviation, which may enlarge differences, so use Centering, which only subtracts a mean"
)
_LAYER_NORM = (
    "it divides by a standard deviation, which has no bound, so use LayerCentering, which only subtracts a mean"
)

REPLACEMENTS: dict[type[nn.Module], str] = {
    nn.Conv2d: "use OrthogonalConv2d",
    nn.ConvTranspose2d: "use OrthogonalConvTranspose2d",
    nn.Linear: "use OrthogonalLinear, or NormalizedLinear as the last layer",
    nn.ReLU: _IN_PLACE,
    nn.LeakyReLU: f"{_IN_PLACE}, and with a slope from -1 to 1",
    nn.Hardtanh: f"{_IN_PLACE}, and with an interval that contains zero",
    nn.ReLU6: _IN_PLACE,
    nn.MaxPool2d: "windows that overlap enlarge differences, so use disjoint square ones, as in MaxPool(size)",
    nn.AvgPool2d: "use AveragePool, which is scaled so that it is tight, or NormPool",
    nn.AdaptiveAvgPool2d: "use GlobalAveragePool, which is scaled so that it is tight, or AveragePool",
    nn.AdaptiveMaxPool2d: "use MaxPool with the size of a window",
    nn.BatchNorm1d: _NORM,
    nn.BatchNorm2d: _NORM,
    nn.SyncBatchNorm: _NORM,
    nn.LayerNorm: _LAYER_NORM,
    nn.GroupNorm: _LAYER_NORM,
    nn.InstanceNorm2d: _LAYER_NORM,
    nn.PReLU: "its slope may exceed one in training, so use nn.LeakyReLU or Householder",
    nn.Flatten: "use nn.Flatten(), which keeps nothing but the batch",
} | dict.fromkeys(
    (nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.CELU, nn.SELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardswish), _SMOOTH
)
"""What to use in place of a module that cannot be frozen."""
