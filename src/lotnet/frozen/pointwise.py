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
from lotnet.linalg.bounds import beta, constant_image_norm, norm_bound, spectral_norm_bound
from lotnet.linalg.roundoff import Upper, householder_bound, householder_error, rounding_error
from lotnet.records import Between


def max_min(x: Tensor) -> Tensor:
    """The larger of channels i and i + c/2 as channel i, the smaller as channel i + c/2."""
    a, b = x.chunk(2, dim=1)
    return torch.cat((a.maximum(b), a.minimum(b)), dim=1)


def by_channel(values: Tensor, x: Tensor) -> Tensor:  # c, b c ... -> c 1 ...
    """Lay out a number for each channel so that it is broadcast over the pixels of x."""
    return values.view(-1, *(1,) * (x.ndim - 2))


def pixel_axes(x: Tensor) -> tuple[int, ...]:  # b c ...
    return tuple(range(2, x.ndim))


def windows_to_channels(x: Tensor, stride: tuple[int, int]) -> Tensor:  # b c h w -> b c*r*s h/r w/s
    """`F.pixel_unshuffle` with a stride (rows, columns): each window of that size becomes as many channels.

    It preserves the memory order pixels, channels, batch, in which `linalg.fourier` returns images. An empty batch,
    which `F.pixel_unshuffle` returns as it is, changes its shape like any other.
    """
    pixels, (r, s) = x.permute(2, 3, 1, 0), stride
    h, w, c, b = pixels.shape
    if not pixels.is_contiguous():
        windows = x.reshape(b, c, h // r, r, w // s, s).permute(0, 1, 3, 5, 2, 4)
        return windows.reshape(b, c * r * s, h // r, w // s)
    windows = pixels.view(h // r, r, w // s, s, c, b).permute(0, 2, 4, 1, 3, 5)
    return windows.reshape(h // r, w // s, c * r * s, b).permute(3, 2, 0, 1)


@dataclass(frozen=True)
class ShiftSpec:
    pixels: Annotated[int, Between(1, 4096**2)]


@dataclass(frozen=True)
class WindowSpec:
    """Disjoint windows of size x size in images, and of `size` entries in sequences."""

    size: Size


@dataclass(frozen=True)
class StrideSpec:
    stride: Size | tuple[Size, Size]
    """Of rows and columns; two numbers if they differ."""

    @property
    def sides(self) -> tuple[int, int]:
        return (self.stride, self.stride) if isinstance(self.stride, int) else self.stride


def image_settings(shape: Shape) -> dict[str, int]:
    """The settings of an `ImageSize`. A sequence is an image of one row."""
    return {"height": shape[1] if len(shape) == 3 else 1, "width": shape[-1]}


def stride_settings(stride: tuple[int, int]) -> dict[str, int | list[int]]:
    """The settings of a `StrideSpec`."""
    return {"stride": stride[0] if stride[0] == stride[1] else list(stride)}


def window_shape(shape: Shape, size: int) -> Shape:
    """One entry for each complete window."""
    return (shape[0], *(n // size for n in shape[1:]))


def has_windows(shape: Shape, size: int) -> bool:
    """Whether it is the shape of an image or a sequence that is large enough."""
    return len(shape) in (2, 3) and min(shape[1:]) >= size


class FrozenNormalize(FrozenModule):
    """`(x - mean) / std` per channel: Lipschitz with constant `1 / min std`."""

    Spec = ImageSize
    TENSORS: ClassVar[Mapping[str, str]] = {"mean": "c", "std": "c"}
    INPUT = "c ..."
    spec: ImageSize

    mean: Tensor  # c
    std: Tensor  # c

    def forward(self, x: Tensor) -> Tensor:
        return (x - by_channel(self.mean, x)) / by_channel(self.std, x)

    def _prove_lipschitz(self) -> Upper:
        smallest = float(self.std.abs().min())
        return Upper(1) / smallest if smallest > 0 else Upper(math.inf)

    def _local_error(self, norm: Upper) -> Upper:
        return rounding_error(2, self.output_norm(norm), self.precision)

    def output_norm(self, norm_in: float) -> Upper:
        return self.lipschitz_bound() * (Upper(norm_in) + constant_image_norm(self.mean, self.spec.pixels))

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def fits(self, shape: Shape) -> bool:
        return super().fits(shape) and math.prod(shape[1:]) == self.spec.pixels


class FrozenShift(FrozenModule):
    """`x + shift` per channel, on images or sequences of `pixels` pixels; vectors have one."""

    Spec = ShiftSpec
    TENSORS: ClassVar[Mapping[str, str]] = {"shift": "c"}
    INPUT = "c ..."
    spec: ShiftSpec

    shift: Tensor  # c

    def forward(self, x: Tensor) -> Tensor:
        return x + by_channel(self.shift, x)

    def _prove_lipschitz(self) -> Upper:
        return Upper(1)

    def _local_error(self, norm: Upper) -> Upper:
        return rounding_error(1, self.output_norm(norm), self.precision)

    def output_norm(self, norm_in: float) -> Upper:
        return constant_image_norm(self.shift, self.spec.pixels) + norm_in

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
    """Sums over disjoint windows of n entries, divided by sqrt n: inner products of windows with a unit vector."""

    Spec = WindowSpec
    INPUT = "c ..."
    spec: WindowSpec

    def forward(self, x: Tensor) -> Tensor:
        pool = F.avg_pool2d if x.ndim == 4 else F.avg_pool1d
        return pool(x, self.spec.size) * self.spec.size ** ((x.ndim - 2) / 2)

    def _prove_lipschitz(self) -> Upper:
        return Upper(1)

    def _local_error(self, norm: Upper) -> Upper:
        """n - 1 additions, a quotient, a rounded root and a product, with n at most the square of the size."""
        return rounding_error(self.spec.size**2 + 2, norm, self.precision)

    def output_shape(self, shape: Shape) -> Shape:
        return window_shape(shape, self.spec.size)

    def fits(self, shape: Shape) -> bool:
        return super().fits(shape) and has_windows(shape, self.spec.size)


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
    INPUT = "c ..."
    spec: WindowSpec

    def forward(self, x: Tensor) -> Tensor:
        pool = F.max_pool2d if x.ndim == 4 else F.max_pool1d
        return pool(x, self.spec.size)

    def output_shape(self, shape: Shape) -> Shape:
        return window_shape(shape, self.spec.size)

    def fits(self, shape: Shape) -> bool:
        return super().fits(shape) and has_windows(shape, self.spec.size)


class FrozenDownsampling(Exact):
    """Turn each r x s window into r s channels."""

    Spec = StrideSpec
    INPUT = "c rh sw"
    spec: StrideSpec

    def sizes(self) -> dict[str, int]:
        return dict(zip("rs", self.spec.sides, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        return windows_to_channels(x, self.spec.sides)

    def output_shape(self, shape: Shape) -> Shape:
        (c, h, w), (r, s) = shape, self.spec.sides
        return (c * r * s, h // r, w // s)


class FrozenFlatten(Exact):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def output_shape(self, shape: Shape) -> Shape:
        size = 1
        for n in shape:
            size *= n
        return (size,)
