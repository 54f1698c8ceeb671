"""Orthogonal convolution."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, FrozenSequential, Shape
from lotnet.frozen.freezing import freeze_operator
from lotnet.frozen.pointwise import FrozenDownsampling, windows_to_channels
from lotnet.kernels import dispatch
from lotnet.layers.base import Cached, LipschitzLayer, check_finite, check_sizes, to_compute_dtype
from lotnet.operators import Operator
from lotnet.parametrizations import Geometry, Parametrization, parametrization
from lotnet.parametrizations.base import PaddingMode


class OrthogonalConv2d(LipschitzLayer):
    """Orthogonal 2-D convolution (largest singular value one), aligned like `nn.Conv2d(padding="same")`.

    With a stride s, each s x s window first becomes s^2 channels. This is invertible, so a strided layer can preserve
    norms too. In `train()` mode the layer uses the fast iteration of its parametrization. In `eval()` mode it uses the
    most accurate one, without gradients for the weight, and caches the operator until the weight or the image size
    changes. The output has the input's dtype; half precisions and autocast are widened to float32 inside.

    >>> layer = OrthogonalConv2d(16, 32, 3, stride=2).eval()
    >>> x = torch.randn(1, 16, 8, 8)
    >>> bool(layer(x).sub(layer(torch.zeros_like(x))).norm() <= x.norm() * 1.0001)
    True
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding_mode: PaddingMode = "zeros",
        bias: bool = True,
        parametrization: str | Parametrization = "lot",
    ) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size, stride=stride)
        if padding_mode not in ("zeros", "circular"):
            raise InputError(f"unknown padding_mode {padding_mode!r}: choose zeros or circular")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding_mode: PaddingMode = padding_mode
        self.parametrization = _named(parametrization)
        inner = in_channels * stride**2
        self.weight = nn.Parameter(self.parametrization.initial_weight(out_channels, inner, kernel_size))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        self._eval_operator = Cached()
        self.prepared: Callable[[Geometry], Operator | None] | None = None
        """Gives the operator in training mode, or None to compute it. `lotnet.orthogonalize` sets it for all layers."""

    def forward(self, x: Tensor) -> Tensor:
        self._check(tuple(x.shape))
        with torch.autocast(x.device.type, enabled=False):
            inner = to_compute_dtype(x, self.weight)
            if self.stride > 1:
                inner = windows_to_channels(inner, self.stride)
            y = self.operator(inner.shape[-2], inner.shape[-1]).apply(inner)
            if self.bias is not None:
                y = y + self.bias.to(y.dtype)[:, None, None]
        return y.to(x.dtype)

    def operator(self, height: int, width: int) -> Operator:
        """The linear operator on (downsampled) images of this size."""
        geometry = self.geometry(height, width)
        if self.training:
            prepared = None if self.prepared is None else self.prepared(geometry)
            return self.free_operator(geometry) if prepared is None else prepared
        key, weight = (geometry, self.parametrization), self.free_weight()
        return self._eval_operator.get(
            key, weight, lambda: self.frozen_operator(height, width).to(weight.device, weight.dtype)
        )

    def free_weight(self) -> Tensor:
        """The kernel in the dtype that operators are computed in."""
        return self.weight.to(torch.promote_types(self.weight.dtype, torch.float32))

    def free_operator(self, geometry: Geometry) -> Operator:
        """The operator in training mode, computed anew."""
        if not dispatch.reading_synchronizes(self.weight):  # on a GPU the training loop checks the loss instead
            check_finite(self.weight, "kernel")
        return self.parametrization.operator(self.free_weight(), geometry)

    @torch.no_grad()
    def frozen_operator(self, height: int, width: int) -> Operator:
        """The linear operator on (downsampled) images of this size, as accurate as float64 allows."""
        check_finite(self.weight, "kernel")
        return self.parametrization.operator(self.weight.double(), self.geometry(height, width), frozen=True)

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        self._check((1, *shape))
        c, h, w = (shape[0] * self.stride**2, shape[1] // self.stride, shape[2] // self.stride)
        operator = self.frozen_operator(h, w).to(torch.device("cpu"), torch.float64)
        bias = None if self.bias is None else self.bias.detach().double().cpu()
        convolution = freeze_operator(operator, (c, h, w), bias, dtype)
        if self.stride == 1:
            return convolution
        return FrozenSequential(dtype, {}, {}, FrozenDownsampling(dtype, {"stride": self.stride}, {}), convolution)

    def geometry(self, height: int, width: int) -> Geometry:
        """The convolution on (downsampled) images of this size."""
        inner = self.in_channels * self.stride**2
        geometry = Geometry(self.out_channels, inner, self.kernel_size, height, width, self.padding_mode)
        geometry.check()
        return geometry

    def _check(self, shape: Shape) -> None:
        if len(shape) != 4 or shape[1] != self.in_channels:
            remedy = "set in_channels to match" if len(shape) == 4 else "one image is a batch of one, x[None]"
            raise InputError(
                f"this layer takes batches of images with {self.in_channels} channels (b, {self.in_channels}, h, w), "
                f"not a tensor of shape {tuple(shape)}: {remedy}"
            )
        if shape[2] % self.stride or shape[3] % self.stride:
            raise InputError(
                f"images of {shape[2]} x {shape[3]} cannot be downsampled by the stride {self.stride}: "
                "resize or pad them to a multiple of it"
            )

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={self.stride}" if self.stride > 1 else ""
        text += f", padding_mode={self.padding_mode!r}" if self.padding_mode != "zeros" else ""
        return f"{text}, parametrization={self.parametrization}"


_named = parametrization  # the constructor's argument has the same name
