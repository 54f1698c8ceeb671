"""Frozen modules other than convolutions: pointwise, on pairs of channels, on windows, dense, and exact ones."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.frozen.base import Exact, FrozenModule, ImageSize, Shape, Size
from lotnet.kernels import dispatch
from lotnet.linalg.bounds import beta, norm_bound, spectral_norm_bound
from lotnet.linalg.roundoff import Upper, householder_bound, householder_error, rounding_error
from lotnet.records import Between


def max_min(x: Tensor) -> Tensor:
    """The larger of channels i and i + c/2 as channel i, the smaller as channel i + c/2."""
    a, b = x.chunk(2, dim=1)
    return torch.cat((a.maximum(b), a.minimum(b)), dim=1)


def windows_to_channels(x: Tensor, stride: int) -> Tensor:  # b c h w -> b c*s*s h/s w/s
    """`F.pixel_unshuffle`: each stride x stride window becomes stride^2 channels.

    It preserves the memory order pixels, channels, batch, in which `linalg.fourier` returns images. An empty batch,
    which `F.pixel_unshuffle` returns as it is, changes its shape like any other.
    """
    pixels = x.permute(2, 3, 1, 0)
    h, w, c, b = pixels.shape
    if not pixels.is_contiguous():
        windows = x.reshape(b, c, h // stride, stride, w // stride, stride).permute(0, 1, 3, 5, 2, 4)
        return windows.reshape(b, c * stride**2, h // stride, w // stride)
    windows = pixels.view(h // stride, stride, w // stride, stride, c, b).permute(0, 2, 4, 1, 3, 5)
    return windows.reshape(h // stride, w // stride, c * stride**2, b).permute(3, 2, 0, 1)


@dataclass(frozen=True)
class ShiftSpec:
    pixels: Annotated[int, Between(1, 4096**2)]


@dataclass(frozen=True)
class WindowSpec:
    """Disjoint windows of size x size."""

    size: Size


@dataclass(frozen=True)
class StrideSpec:
    stride: Size


class FrozenNormalize(FrozenModule):
    """`(x - mean) / std` per channel: Lipschitz with constant `1 / min std`."""

    Spec = ImageSize
    TENSORS: ClassVar[Mapping[str, str]] = {"mean": "c", "std": "c"}
    INPUT = "c h w"
    spec: ImageSize

    mean: Tensor  # c
    std: Tensor  # c

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean[:, None, None]) / self.std[:, None, None]

    def _prove_lipschitz(self) -> Upper:
        smallest = float(self.std.abs().min())
        return Upper(1) / smallest if smallest > 0 else Upper(math.inf)

    def _local_error(self, norm: Upper) -> Upper:
        return rounding_error(2, self.output_norm(norm), self.precision)

    def output_norm(self, norm_in: float) -> Upper:
        return self.lipschitz_bound() * (Upper(norm_in) + self._mean_norm())

    def _mean_norm(self) -> Upper:
        return Upper(self.spec.pixels).sqrt() * float(norm_bound(self.mean))

    def output_shape(self, shape: Shape) -> Shape:
        return shape


class FrozenShift(FrozenModule):
    """`x + shift` per channel, on images of `pixels` pixels."""

    Spec = ShiftSpec
    TENSORS: ClassVar[Mapping[str, str]] = {"shift": "c"}
    INPUT = "c h w"
    spec: ShiftSpec

    shift: Tensor  # c

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift[:, None, None]

    def _prove_lipschitz(self) -> Upper:
        return Upper(1)

    def _local_error(self, norm: Upper) -> Upper:
        return rounding_error(1, self.output_norm(norm), self.precision)

    def output_norm(self, norm_in: float) -> Upper:
        return Upper(self.spec.pixels).sqrt() * float(norm_bound(self.shift)) + norm_in

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def fits(self, shape: Shape) -> bool:
        return super().fits(shape) and math.prod(shape[1:]) == self.spec.pixels


class FrozenHouseholder(FrozenModule):
    """`z - 2 v relu(v.z)` on pairs of channels, for each v in turn: continuous whatever v was rounded to."""

    TENSORS: ClassVar[Mapping[str, str]] = {"normals": "n 2 p"}
    INPUT = "2p ..."
    normals: Tensor  # order, 2, c/2

    def forward(self, x: Tensor) -> Tensor:
        return dispatch.reflect(x, self.normals)

    def _steps(self) -> list[float]:
        """The largest norm of a stored v at each step."""
        return [float(norm_bound(v, dim=0).max()) for v in self.normals]

    def _prove_lipschitz(self) -> Upper:
        bound = Upper(1)
        for v in self._steps():
            bound = bound * householder_bound(v)
        return bound

    def _local_error(self, norm: Upper) -> Upper:
        error = Upper(0)
        for v in self._steps():
            error = householder_bound(v) * error + householder_error(v, 2, norm + error, self.precision)
            norm = householder_bound(v) * norm
        return error

    def output_shape(self, shape: Shape) -> Shape:
        return shape


class FrozenAveragePool(FrozenModule):
    """Sums over disjoint k x k windows, divided by k: each output is a unit vector's inner product with a window."""

    Spec = WindowSpec
    INPUT = "c h w"
    spec: WindowSpec

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, self.spec.size) * self.spec.size

    def _prove_lipschitz(self) -> Upper:
        return Upper(1)

    def _local_error(self, norm: Upper) -> Upper:
        return rounding_error(self.spec.size**2 + 2, norm, self.precision)

    def output_shape(self, shape: Shape) -> Shape:
        c, h, w = shape
        return (c, h // self.spec.size, w // self.spec.size)

    def fits(self, shape: Shape) -> bool:
        return super().fits(shape) and min(shape[1:]) >= self.spec.size


class FrozenLinear(FrozenModule):
    """`W x + b`. For the last layer, `certification.rounding` bounds the norms and errors of single rows instead."""

    TENSORS: ClassVar[Mapping[str, str]] = {"bias": "o", "weight": "o i"}
    INPUT = "i"
    weight: Tensor  # o i
    bias: Tensor  # o

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias

    def _prove_lipschitz(self) -> Upper:
        return Upper(float(spectral_norm_bound(self.weight)))

    def _local_error(self, norm: Upper) -> Upper:
        magnitude = Upper(float(beta(self.weight))) * norm + float(norm_bound(self.bias))
        return rounding_error(self.weight.shape[1] + 1, magnitude, self.precision)

    def output_norm(self, norm_in: float) -> Upper:
        return self.lipschitz_bound() * norm_in + float(norm_bound(self.bias))

    def output_shape(self, shape: Shape) -> Shape:
        return (self.weight.shape[0],)


class FrozenMaxMin(Exact):
    """The larger and the smaller of each pair of channels: a permutation of the entries."""

    INPUT = "2p ..."

    def forward(self, x: Tensor) -> Tensor:
        return max_min(x)

    def output_shape(self, shape: Shape) -> Shape:
        return shape


class FrozenMaxPool(Exact):
    """Largest entry of disjoint windows."""

    Spec = WindowSpec
    INPUT = "c h w"
    spec: WindowSpec

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, self.spec.size)

    def output_shape(self, shape: Shape) -> Shape:
        c, h, w = shape
        return (c, h // self.spec.size, w // self.spec.size)

    def fits(self, shape: Shape) -> bool:
        return super().fits(shape) and min(shape[1:]) >= self.spec.size


class FrozenDownsampling(Exact):
    """Turn each s x s window into s^2 channels."""

    Spec = StrideSpec
    INPUT = "c sh sw"
    spec: StrideSpec

    def sizes(self) -> dict[str, int]:
        return {"s": self.spec.stride}

    def forward(self, x: Tensor) -> Tensor:
        return windows_to_channels(x, self.spec.stride)

    def output_shape(self, shape: Shape) -> Shape:
        c, h, w = shape
        s = self.spec.stride
        return (c * s * s, h // s, w // s)


class FrozenFlatten(Exact):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def output_shape(self, shape: Shape) -> Shape:
        size = 1
        for n in shape:
            size *= n
        return (size,)
