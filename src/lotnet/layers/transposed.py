"""Transposed orthogonal convolution."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, FrozenSequential, Shape
from lotnet.frozen.freezing import freeze_operator
from lotnet.frozen.moves import FrozenUpsampling, channels_to_windows
from lotnet.frozen.pointwise import FrozenShift, stride_settings
from lotnet.layers.arguments import Device, Pair, compact, place
from lotnet.layers.base import LipschitzLayer, to_compute_dtype
from lotnet.layers.conv import OrthogonalConv2d
from lotnet.operators import Operator
from lotnet.parametrizations import Parametrization
from lotnet.parametrizations.base import PaddingMode


class OrthogonalConvTranspose2d(LipschitzLayer):
    """The transpose of `OrthogonalConv2d(out_channels, in_channels, ...)` with the same kernel, plus a bias.

    So its singular values are the same. A stride (r, s) makes images r times as high and s times as wide. The arguments
    are those of `nn.ConvTranspose2d`, in its order. `padding` is "same", or the number that equals it, and
    `output_padding` is zero, or what PyTorch needs for that size: the stride less one.

    >>> layer = OrthogonalConvTranspose2d(32, 8, 3, stride=2, bias=False).eval()
    >>> layer(torch.randn(1, 32, 4, 4)).shape
    torch.Size([1, 8, 8, 8])
    """

    spatial = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: str | int | Pair = "same",
        output_padding: int | Pair = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Pair = 1,
        padding_mode: PaddingMode = "zeros",
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        parametrization: str | Parametrization = "lot",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.transposed = OrthogonalConv2d(
            out_channels,
            in_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            False,
            padding_mode,
            parametrization=parametrization,
        )
        self.stride = self.transposed.stride
        _check_output_padding(output_padding, self.stride)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        place(self, device, dtype)

    @property
    def weight(self) -> nn.Parameter:
        """The free kernel. Without a stride its shape is that of `nn.ConvTranspose2d`, (i, o/groups, k, k)."""
        return self.transposed.weight

    def forward(self, x: Tensor) -> Tensor:
        self._check(tuple(x.shape))
        with torch.autocast(x.device.type, enabled=False):
            inner = to_compute_dtype(x, self.transposed.weight)
            y = self._adjoint(self.transposed.operator(x.shape[-2], x.shape[-1])).apply(inner)
            if self.stride != (1, 1):
                y = channels_to_windows(y, self.stride)
            if self.bias is not None:
                y = y + self.bias.to(y.dtype)[:, None, None]
        return y.to(x.dtype)

    def _adjoint(self, operator: Operator) -> Operator:
        return operator.adjoint(self.out_channels * math.prod(self.stride))

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        self._check((1, *shape))
        operator = self.transposed.frozen_operator(*shape[1:]).to(torch.device("cpu"), torch.float64)
        stages = [freeze_operator(self._adjoint(operator), shape, None, dtype)]
        if self.stride != (1, 1):
            stages.append(FrozenUpsampling(dtype, stride_settings(self.stride), {}))
        if self.bias is not None:
            pixels = math.prod((*shape[1:], *self.stride))
            stages.append(FrozenShift(dtype, {"pixels": pixels}, {"shift": self.bias.detach().double().cpu()}))
        return FrozenSequential(dtype, {}, {}, *stages)

    def _check(self, shape: Shape) -> None:
        if len(shape) != 4 or shape[1] != self.in_channels:
            raise InputError(
                f"this layer takes batches of images with {self.in_channels} channels (b, {self.in_channels}, h, w), "
                f"not a tensor of shape {tuple(shape)}: set in_channels to match"
            )

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}"


def _check_output_padding(output_padding: int | Pair, stride: Pair) -> None:
    """Accept zero and the stride less one, with which PyTorch's layer returns images of the same size."""
    wanted = (stride[0] - 1, stride[1] - 1)
    given = tuple(output_padding) if isinstance(output_padding, Sequence) else (output_padding,) * 2
    if given not in ((0, 0), wanted):
        raise InputError(
            f"output_padding must be 0 or {compact(wanted)}, not {output_padding!r}: the output is always the stride "
            "times as large as the input"
        )
