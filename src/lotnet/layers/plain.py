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
from lotnet.frozen.moves import FrozenChannelShuffle, FrozenUpsampling, FrozenZeroPad
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


def _prelu(module: nn.PReLU, shape: Shape, dtype: torch.dtype) -> Stages | None:
    slope = module.weight.detach().double().cpu()
    if len(slope) not in (1, shape[0]) or not (slope.abs() <= 1).all():
        return None
    return [leaky_relu(slope.expand(shape[0]), dtype)]


def leaky_relu(slope: Tensor, dtype: torch.dtype) -> FrozenLeakyReLU:  # c
    return FrozenLeakyReLU(dtype, {}, {"slope": slope})


def _hardtanh(module: nn.Hardtanh, shape: Shape, dtype: torch.dtype) -> Stages | None:
    if module.inplace or not module.min_val <= 0 <= module.max_val:
        return None
    low, high = (torch.tensor(value, dtype=torch.float64) for value in (module.min_val, module.max_val))
    return [FrozenHardtanh(dtype, {}, {"low": low, "high": high})]


def _max_pool(module: nn.MaxPool1d | nn.MaxPool2d, shape: Shape, dtype: torch.dtype) -> Stages | None:
    windows = {*_pair(module.kernel_size), *_pair(module.stride)}
    others = (*_pair(module.padding), *(n - 1 for n in _pair(module.dilation)), module.ceil_mode, module.return_indices)
    if len(windows) > 1 or any(others) or len(shape) != (2 if isinstance(module, nn.MaxPool1d) else 3):
        return None
    return [FrozenMaxPool(dtype, {"size": windows.pop()}, {})]


def _pair(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _unshuffle(module: nn.PixelUnshuffle, shape: Shape, dtype: torch.dtype) -> Stages | None:
    return [FrozenDownsampling(dtype, {"stride": module.downscale_factor}, {})]


def _shuffle(module: nn.PixelShuffle, shape: Shape, dtype: torch.dtype) -> Stages | None:
    return [FrozenUpsampling(dtype, {"stride": module.upscale_factor}, {})]


def _channel_shuffle(module: nn.ChannelShuffle, shape: Shape, dtype: torch.dtype) -> Stages | None:
    return [FrozenChannelShuffle(dtype, {"groups": module.groups}, {})]


def _zero_pad(module: nn.ZeroPad1d | nn.ZeroPad2d, shape: Shape, dtype: torch.dtype) -> Stages | None:
    border = list(module.padding)
    return (
        [FrozenZeroPad(dtype, {"border": border}, {})]
        if min(border) >= 0 and len(border) == 2 * len(shape[1:])
        else None
    )


FREEZERS: dict[type[nn.Module], Callable[[Any, Shape, torch.dtype], Stages | None]] = {
    nn.Identity: _nothing,
    nn.Flatten: _flatten,
    nn.ReLU: _relu,
    nn.LeakyReLU: _leaky_relu,
    nn.PReLU: _prelu,
    nn.Hardtanh: _hardtanh,
    nn.ReLU6: _hardtanh,
    nn.Dropout: _nothing,
    nn.Dropout1d: _nothing,
    nn.Dropout2d: _nothing,
    nn.AlphaDropout: _nothing,
    nn.MaxPool1d: _max_pool,
    nn.MaxPool2d: _max_pool,
    nn.ZeroPad1d: _zero_pad,
    nn.ZeroPad2d: _zero_pad,
    nn.ChannelShuffle: _channel_shuffle,
    nn.PixelUnshuffle: _unshuffle,
    nn.PixelShuffle: _shuffle,
}
"""How a module is frozen. None stands for arguments that no bound covers."""

_SMOOTH = "its slope exceeds one, or nobody has proved how it rounds, so use MaxMin, Householder, GroupSort or nn.ReLU"
_IN_PLACE = "use it without inplace=True, because a residual reads its own input again"
_OVERLAP = "windows that overlap enlarge differences, so use disjoint square ones, as in MaxPool(size)"
_AVERAGE = "use AveragePool, which is scaled so that it is tight, or NormPool"
_GLOBAL = "use GlobalAveragePool, which is scaled so that it is tight, or AveragePool"
_NORM = (
    "it divides by a standard deviation, which may enlarge differences, so use Centering, which only subtracts a mean"
)
_LAYER_NORM = "it divides by a size, which may be near zero, so use LayerCentering, which only subtracts a mean"
_LOGITS = "leave it out, because losses and certificates read logits"
_JUMPS = "it may jump, so use MaxMin or nn.ReLU"
_COPIES = "it copies pixels, which enlarges differences, so use nn.ZeroPad2d"
_UPSAMPLE = "it copies pixels, which enlarges differences, so use InvertibleUpsampling or OrthogonalConvTranspose2d"
_AXES = "use OrthogonalConv2d or OrthogonalConv1d, because lotnet has layers for images and sequences only"
_PRODUCTS = "it multiplies parts of its input, which has no Lipschitz constant, so use convolutions and MaxMin"

REPLACEMENTS: dict[type[nn.Module], str] = {
    nn.Conv1d: "use OrthogonalConv1d",
    nn.Conv2d: "use OrthogonalConv2d",
    nn.ConvTranspose1d: "use OrthogonalConvTranspose2d on images of one column",
    nn.ConvTranspose2d: "use OrthogonalConvTranspose2d",
    nn.Linear: "use OrthogonalLinear, or NormalizedLinear as the last layer",
    nn.ReLU: _IN_PLACE,
    nn.LeakyReLU: f"{_IN_PLACE}, and with a slope from -1 to 1",
    nn.Hardtanh: f"{_IN_PLACE}, and with an interval that contains zero",
    nn.ReLU6: _IN_PLACE,
    nn.PReLU: "clamp its slopes to [-1, 1] after each step, with one of them or one for each channel",
    nn.RReLU: "its slope is random, so use nn.LeakyReLU or Householder",
    nn.Flatten: "use nn.Flatten(), which keeps nothing but the batch",
    nn.AdaptiveMaxPool1d: "use MaxPool with the size of a window",
    nn.AdaptiveMaxPool2d: "use MaxPool with the size of a window",
    nn.LPPool1d: "use AveragePool",
    nn.LPPool2d: "use NormPool",
    nn.ZeroPad1d: "use borders of zero or more pixels, on sequences",
    nn.ZeroPad2d: "use borders of zero or more pixels, on images",
    nn.InstanceNorm1d: _LAYER_NORM,
    nn.InstanceNorm2d: _LAYER_NORM,
} | {
    kind: remedy
    for remedy, kinds in {
        _SMOOTH: (
            *(nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.CELU, nn.SELU, nn.Tanh, nn.Tanhshrink, nn.Softsign),
            *(nn.Sigmoid, nn.LogSigmoid, nn.Hardsigmoid, nn.Softplus, nn.Hardswish, nn.Softshrink),
        ),
        _JUMPS: (nn.Threshold, nn.Hardshrink),
        _OVERLAP: (nn.MaxPool1d, nn.MaxPool2d, nn.FractionalMaxPool2d),
        _AVERAGE: (nn.AvgPool1d, nn.AvgPool2d),
        _GLOBAL: (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
        _NORM: (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
        _LAYER_NORM: (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.LocalResponseNorm),
        _LOGITS: (nn.Softmax, nn.LogSoftmax, nn.Softmax2d, nn.Softmin),
        _COPIES: (nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d),
        _UPSAMPLE: (nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d),
        _AXES: (nn.Conv3d, nn.ConvTranspose3d),
        _PRODUCTS: (nn.GLU, nn.MultiheadAttention, nn.Bilinear),
    }.items()
    for kind in kinds
}
"""What to use in place of a module that cannot be frozen."""
