"""Orthogonal convolution."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, FrozenSequential, Shape
from lotnet.frozen.freezing import freeze_operator
from lotnet.frozen.pointwise import FrozenDownsampling, stride_settings, windows_to_channels
from lotnet.kernels import dispatch
from lotnet.layers.arguments import Device, Pair, check_padding, check_padding_mode, compact, pair, place
from lotnet.layers.base import Cached, LipschitzLayer, check_finite, check_sizes, to_compute_dtype
from lotnet.operators import Dilated, Operator, Phases
from lotnet.parametrizations import Geometry, Parametrization, parametrization
from lotnet.parametrizations.base import KernelSize, PaddingMode, sides


class OrthogonalConv2d(LipschitzLayer):
    """Orthogonal 2-D convolution (largest singular value one), aligned like `nn.Conv2d(padding="same")`.

    The arguments are those of `nn.Conv2d`, in its order, where the layer can be orthogonal.

    Args:
        kernel_size: a side, or (rows, columns).
        stride: s, or (r, s). Each r x s window first becomes r s channels, and the kernel acts on those. This is
            invertible, so a strided layer can preserve norms.
        padding: "same", or the number that equals it: 1 for a 3 x 3 kernel. With a stride, "same" means as many outputs
            as windows.
        dilation: with dilation d, tap t of k reads the pixel `d t - floor(d (k - 1) / 2)` away.
        groups: each group of channels has its own kernel, as in `nn.Conv2d`. Windows of a channel belong to its group.
        padding_mode: "zeros", or "circular" for periodic images. Only circular padding preserves norms exactly.
        parametrization: a name (lot, soc, cayley, bcop, eco, spectral, rko), or an object with settings, such as
            `SOC(terms=6)`.

    In `train()` mode the layer uses the fast iteration of its parametrization. In `eval()` mode it uses the
    most accurate one, without gradients for the weight, and caches the operator until the weight or the image size
    changes. The output has the input's dtype; half precisions and autocast are widened to float32 inside.

    >>> layer = OrthogonalConv2d(16, 32, 3, stride=2).eval()
    >>> x = torch.randn(1, 16, 8, 8)
    >>> bool(layer(x).sub(layer(torch.zeros_like(x))).norm() <= x.norm() * 1.0001)
    True
    """

    spatial = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: str | int | Pair = "same",
        dilation: int | Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        parametrization: str | Parametrization = "lot",
    ) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise InputError(
                f"{in_channels} input and {out_channels} output channels cannot be divided into {groups} groups: "
                "choose a number that divides both"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        rows, columns = pair("kernel_size", kernel_size)
        self.kernel_size: KernelSize = compact((rows, columns))
        self.stride = pair("stride", stride)
        self.dilation = pair("dilation", dilation)
        check_padding(padding, (rows, columns), self.dilation)
        self.groups = groups
        self.padding_mode = check_padding_mode(padding_mode)
        self.parametrization = _named(parametrization)
        sizes = (out_channels // groups, in_channels // groups * math.prod(self.stride), self.kernel_size)
        weights = [self.parametrization.initial_weight(*sizes) for _ in range(groups)]
        self.weight = nn.Parameter(torch.cat(weights))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        self._eval_operator = Cached()
        self.prepared: Callable[[Geometry], Operator | None] | None = None
        """Gives the operator in training mode, or None to compute it. `lotnet.orthogonalize` sets it for all layers."""
        place(self, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        self._check(tuple(x.shape))
        with torch.autocast(x.device.type, enabled=False):
            inner = to_compute_dtype(x, self.weight)
            if self.stride != (1, 1):
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
            return self._dilated(self.free_operator(geometry) if prepared is None else prepared)
        key, weight = (geometry, self.parametrization), self.free_weight()
        return self._eval_operator.get(
            key, weight, lambda: self.frozen_operator(height, width).to(weight.device, weight.dtype)
        )

    def free_weight(self) -> Tensor:
        """The kernel in the dtype that operators are computed in."""
        return self.weight.to(torch.promote_types(self.weight.dtype, torch.float32))

    def free_operator(self, geometry: Geometry) -> Operator:
        """The operator in training mode on each phase of the dilation, computed anew."""
        if not dispatch.reading_synchronizes(self.weight):  # on a GPU the training loop checks the loss instead
            check_finite(self.weight, "kernel")
        return self.parametrization.grouped(self.free_weight(), geometry)

    @torch.no_grad()
    def frozen_operator(self, height: int, width: int) -> Operator:
        """The linear operator on (downsampled) images of this size, as accurate as float64 allows."""
        check_finite(self.weight, "kernel")
        return self._dilated(self.parametrization.grouped(self.weight.double(), self.geometry(height, width), True))

    def _dilated(self, operator: Operator) -> Operator:
        return operator if self._phases.count == 1 else Dilated(operator, self._phases)

    @property
    def _phases(self) -> Phases:
        kernel_size = sides(self.kernel_size)
        rows, columns = (d if k > 1 else 1 for k, d in zip(kernel_size, self.dilation, strict=True))  # one tap stays
        return Phases.of(kernel_size, (rows, columns), self.padding_mode == "circular")

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        self._check((1, *shape))
        downsampling = FrozenDownsampling(dtype, stride_settings(self.stride), {})
        c, h, w = downsampling.output_shape(shape)
        operator = self.frozen_operator(h, w).to(torch.device("cpu"), torch.float64)
        bias = None if self.bias is None else self.bias.detach().double().cpu()
        convolution = freeze_operator(operator, (c, h, w), bias, dtype)
        if self.stride == (1, 1):
            return convolution
        return FrozenSequential(dtype, {}, {}, downsampling, convolution)

    def geometry(self, height: int, width: int) -> Geometry:
        """The convolution on one phase of (downsampled) images of this size."""
        phases = self._phases
        if phases.circular and (height % phases.dilation[0] or width % phases.dilation[1]):
            raise InputError(
                f"circular padding with dilation {phases.dilation} needs sides divisible by it, not {height} x "
                f'{width}: resize the images or use padding_mode="zeros"'
            )
        reach = [k * d for k, d in zip(sides(self.kernel_size), phases.dilation, strict=True)]
        if phases.circular and phases.count > 1 and (reach[0] > height or reach[1] > width):
            raise InputError(
                f"a kernel of size {self.kernel_size} with dilation {compact(self.dilation)} does not fit a periodic "
                f"image of {height} x {width}: use a smaller kernel_size or dilation, or larger images"
            )
        inputs, outputs = self.in_channels // self.groups * math.prod(self.stride), self.out_channels // self.groups
        size = phases.size(height, width)
        geometry = Geometry(outputs, inputs, self.kernel_size, *size, self.padding_mode, self.groups)
        geometry.check()
        return geometry

    def _check(self, shape: Shape) -> None:
        if len(shape) != 4 or shape[1] != self.in_channels:
            remedy = "set in_channels to match" if len(shape) == 4 else "one image is a batch of one, x[None]"
            raise InputError(
                f"this layer takes batches of images with {self.in_channels} channels (b, {self.in_channels}, h, w), "
                f"not a tensor of shape {tuple(shape)}: {remedy}"
            )
        if shape[2] % self.stride[0] or shape[3] % self.stride[1]:
            raise InputError(
                f"images of {shape[2]} x {shape[3]} cannot be downsampled by the stride {compact(self.stride)}: "
                "resize or pad them to a multiple of it"
            )

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={compact(self.stride)}" if self.stride != (1, 1) else ""
        text += f", dilation={compact(self.dilation)}" if self.dilation != (1, 1) else ""
        text += f", groups={self.groups}" if self.groups > 1 else ""
        text += f", padding_mode={self.padding_mode!r}" if self.padding_mode != "zeros" else ""
        return f"{text}, parametrization={self.parametrization}"


_named = parametrization  # the constructor's argument has the same name
