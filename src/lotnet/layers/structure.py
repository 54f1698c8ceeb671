"""Layers other than convolutions and activations: normalisation, residual connections, downsampling and pooling."""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.nn import functional as dist_fn

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, Shape
from lotnet.frozen.branches import FrozenResidual
from lotnet.frozen.pointwise import (
    FrozenAveragePool,
    FrozenDownsampling,
    FrozenMaxPool,
    FrozenNormalize,
    FrozenShift,
    by_channel,
    image_settings,
    pixel_axes,
    stride_settings,
    windows_to_channels,
)
from lotnet.layers.arguments import Pair, compact, pair
from lotnet.layers.base import LipschitzLayer, check_floating, check_sizes, frozen_block


class Normalize(LipschitzLayer):
    """`(x - mean) / std` per channel: the first module of every model, so that radii are in pixels of [0, 1].

    Its Lipschitz constant `1 / min std` is part of every certificate. With one std for all channels, that constant is
    exact in every direction.

    >>> Normalize(mean=[0.5], std=0.25)(torch.ones(1, 1, 1, 1)).item()
    2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: float | Sequence[float]) -> None:
        super().__init__()
        means, deviations = (torch.as_tensor(value, dtype=torch.float32, device="cpu") for value in (mean, std))
        if means.ndim != 1 or not len(means) or not means.isfinite().all():
            raise InputError(f"Normalize needs a finite mean for each channel, not {mean}: pass a list, such as [0.5]")
        if deviations.ndim == 0:
            deviations = deviations.repeat(len(means))
        if deviations.shape != means.shape or not ((deviations > 0) & deviations.isfinite()).all():
            raise InputError(f"Normalize needs one positive std, or one for each entry of mean, not {std}")
        self.in_channels = len(means)
        self.register_buffer("mean", torch.tensor(means.tolist()))  # on the default device
        self.register_buffer("std", torch.tensor(deviations.tolist()))

    def forward(self, x: Tensor) -> Tensor:
        self._check(tuple(x.shape))
        check_floating(x)
        return (x - by_channel(self.mean.to(x.dtype), x)) / by_channel(self.std.to(x.dtype), x)

    def _check(self, shape: Shape) -> None:
        if len(shape) not in (3, 4) or shape[1] != self.in_channels:
            raise InputError(
                f"the model takes images with {self.in_channels} channels (b, {self.in_channels}, h, w), not a tensor "
                f"of shape {shape}: give mean one entry for each channel"
            )

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        self._check((1, *shape))  # one mean for many channels would be broadcast, and its norm understated
        return FrozenNormalize(dtype, image_settings(shape), {"mean": self.mean.cpu(), "std": self.std.cpu()})

    def extra_repr(self) -> str:
        return f"mean={[round(m, 4) for m in self.mean.tolist()]}, std={[round(s, 4) for s in self.std.tolist()]}"


class ConvexResidual(LipschitzLayer):
    """Residual connection `mix x + (1 - mix) block(x)`: 1-Lipschitz if the block is.

    The mix is the sigmoid of a logit, which may be trainable. A block that changes the shape needs a `shortcut`, which
    replaces x and makes the same change of shape.

    >>> ConvexResidual(nn.Flatten(2), mix=0.25, shortcut=nn.Flatten(2))(torch.ones(1, 2, 3, 3)).shape
    torch.Size([1, 2, 9])
    """

    logit: Tensor

    def __init__(
        self, block: nn.Module, mix: float = 0.5, trainable: bool = False, shortcut: nn.Module | None = None
    ) -> None:
        super().__init__()
        if not 0 < mix < 1:
            raise InputError(f"a residual's mix lies strictly between 0 and 1, not {mix}")
        self.block = block
        self.shortcut = nn.Identity() if shortcut is None else shortcut
        logit = torch.tensor(math.log(mix / (1 - mix)))
        if trainable:
            self.logit = nn.Parameter(logit)
        else:
            self.register_buffer("logit", logit)

    def forward(self, x: Tensor) -> Tensor:
        check_floating(x)
        mix = torch.sigmoid(self.logit).to(x.dtype)
        direct, through = self.shortcut(x), self.block(x)
        _check_sum(direct.shape, through.shape)
        return mix * direct + (1 - mix) * through

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        block = frozen_block(self.block, shape, dtype, "residual block")
        shortcut = frozen_block(self.shortcut, shape, dtype, "residual shortcut")
        _check_sum(shortcut.output_shape(shape), block.output_shape(shape))
        mix = torch.sigmoid(self.logit.detach().double().cpu())
        return FrozenResidual(dtype, {}, {"weights": torch.stack((mix, 1 - mix))}, shortcut, block)


def _check_sum(direct: Shape, through: Shape) -> None:
    """Refuse shapes that differ: they might be broadcast, which no bound covers."""
    if direct != through:
        raise InputError(
            f"a residual adds shapes {tuple(direct)} and {tuple(through)}: give it a shortcut that changes the shape "
            "as its block does"
        )


class InvertibleDownsampling(LipschitzLayer):
    """Turn each window of pixels, `stride` high and wide, into channels: a permutation of the entries.

    >>> InvertibleDownsampling(2)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 12, 4, 4])
    """

    def __init__(self, stride: int | Pair) -> None:
        super().__init__()
        self.stride = pair("stride", stride)

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, "InvertibleDownsampling")
        if x.shape[-2] % self.stride[0] or x.shape[-1] % self.stride[1]:
            raise InputError(
                f"images of {x.shape[-2]} x {x.shape[-1]} cannot be downsampled by {compact(self.stride)}: "
                "resize or pad them to a multiple of it"
            )
        return windows_to_channels(x, self.stride)

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        return FrozenDownsampling(dtype, stride_settings(self.stride), {})

    def extra_repr(self) -> str:
        return f"stride={compact(self.stride)}"


class Centering(LipschitzLayer):
    """Batch normalisation with its scale fixed at one: subtracts the channel's mean and adds a bias.

    Training uses the mean of the whole batch, over all processes. Evaluation uses the running mean, a constant, so the
    layer is 1-Lipschitz. It takes images, sequences (b, c, n) and vectors (b, c).

    >>> bool(Centering(3)(torch.rand(8, 3, 4, 4)).mean().abs() < 1e-6)
    True
    """

    running_mean: Tensor

    def __init__(self, channels: int, momentum: float = 0.1) -> None:
        super().__init__()
        check_sizes(channels=channels)
        if not 0 <= momentum <= 1:
            raise InputError(f"the momentum of a Centering lies between 0 and 1, not {momentum}")
        self.momentum = momentum
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        self._check(tuple(x.shape))
        check_floating(x)
        mean = self.running_mean.to(x.dtype)
        if self.training and len(x):  # nothing has no mean
            mean = x.mean(dim=(0, *pixel_axes(x)))
            if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
                mean = dist_fn.all_reduce(mean) / dist.get_world_size()  # every process has an equal batch
            with torch.no_grad():
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        return x + by_channel(self.bias.to(x.dtype) - mean, x)

    def _check(self, shape: Shape) -> None:
        if len(shape) not in (2, 3, 4) or shape[1] != len(self.bias):
            raise InputError(
                f"this Centering takes images with {len(self.bias)} channels, not a tensor of shape {shape}: "
                "set channels to match"
            )

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        self._check((1, *shape))  # see Normalize
        shift = (self.bias.detach().double() - self.running_mean.double()).cpu()
        return FrozenShift(dtype, {"pixels": math.prod(shape[1:])}, {"shift": shift})


class AveragePool(LipschitzLayer):
    """Average pooling times `size`, the largest scale at which it is 1-Lipschitz: window sums divided by `size`.

    Windows are disjoint. Rows and columns that fill no window are left out. Windows of a sequence (b, c, n) have `size`
    entries, and their sums are divided by its root.

    >>> AveragePool(2)(torch.ones(1, 1, 2, 2)).item()
    2.0
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        check_sizes(size=size)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        check_pool(x, self.size)
        if x.ndim == 3:
            return F.avg_pool1d(x, self.size) * math.sqrt(self.size)
        return F.avg_pool2d(x, self.size) * self.size

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        return FrozenAveragePool(dtype, {"size": self.size}, {})

    def extra_repr(self) -> str:
        return f"size={self.size}"


class MaxPool(LipschitzLayer):
    """Max pooling over disjoint size x size windows, or windows of `size` entries of a sequence (b, c, n).

    Rows and columns that fill no window are left out.

    >>> MaxPool(2)(torch.arange(4.0).view(1, 1, 2, 2)).item()
    3.0
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        check_sizes(size=size)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        check_pool(x, self.size)
        return F.max_pool1d(x, self.size) if x.ndim == 3 else F.max_pool2d(x, self.size)

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        return FrozenMaxPool(dtype, {"size": self.size}, {})

    def extra_repr(self) -> str:
        return f"size={self.size}"


def check_images(x: Tensor, name: str, sequences: bool = False) -> None:
    check_floating(x)
    if x.ndim != 4 and not (sequences and x.ndim == 3):
        known = "images (b, c, h, w)" + (" or sequences (b, c, n)" if sequences else "")
        raise InputError(
            f"{name} takes batches of {known}, not a tensor of shape {tuple(x.shape)}: one image is a batch of one, "
            "x[None]"
        )


def check_pool(x: Tensor, size: int) -> None:
    check_images(x, "a pool", sequences=True)
    if min(x.shape[2:]) < size:
        found, wanted = (" x ".join(map(str, n)) for n in (x.shape[2:], [size] * (x.ndim - 2)))
        raise InputError(f"images of {found} have no window of {wanted}: use a smaller size or larger images")
