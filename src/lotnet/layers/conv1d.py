"""Orthogonal convolution of sequences."""

from typing import Any

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, FrozenSequential, Shape
from lotnet.frozen.moves import FrozenFromColumn, FrozenToColumn
from lotnet.layers.arguments import Device, check_padding, single
from lotnet.layers.base import LipschitzLayer
from lotnet.layers.conv import OrthogonalConv2d
from lotnet.parametrizations import Parametrization
from lotnet.parametrizations.base import PaddingMode


class OrthogonalConv1d(LipschitzLayer):
    """Orthogonal 1-D convolution (largest singular value one), aligned like `nn.Conv1d(padding="same")`.

    The arguments are those of `nn.Conv1d`, with the meaning that they have in `OrthogonalConv2d`: a sequence is an
    image of one column, and the layer's `column` is the convolution of that image. (Half of the frequencies along a
    column determine the others, which saves most of the work of a row.)

    >>> layer = OrthogonalConv1d(4, 8, 3, stride=2).eval()
    >>> layer(torch.randn(1, 4, 10)).shape
    torch.Size([1, 8, 5])
    """

    spatial = 1

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int],
        stride: int | tuple[int] = 1,
        padding: str | int | tuple[int] = "same",
        dilation: int | tuple[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        parametrization: str | Parametrization = "lot",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = single("kernel_size", kernel_size)
        self.stride = single("stride", stride)
        self.dilation = single("dilation", dilation)
        check_padding(padding, (self.kernel_size,), (self.dilation,))
        sizes: dict[str, Any] = {
            "kernel_size": (self.kernel_size, 1),
            "stride": (self.stride, 1),
            "dilation": (self.dilation, 1),
            "padding_mode": padding_mode,
            "device": device,
            "dtype": dtype,
        }
        self.column = OrthogonalConv2d(
            in_channels, out_channels, groups=groups, bias=bias, parametrization=parametrization, **sizes
        )

    @property
    def weight(self) -> nn.Parameter:
        """The free kernel, as that of a convolution of one column (o, i/groups, k, 1)."""
        return self.column.weight

    @property
    def bias(self) -> nn.Parameter | None:
        return self.column.bias

    def forward(self, x: Tensor) -> Tensor:
        self._check(tuple(x.shape))
        return self.column(x[..., None])[..., 0]

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        self._check((1, *shape))
        column = self.column.frozen((*shape, 1), dtype)
        return FrozenSequential(dtype, {}, {}, FrozenToColumn(dtype, {}, {}), column, FrozenFromColumn(dtype, {}, {}))

    def _check(self, shape: Shape) -> None:
        if len(shape) != 3 or shape[1] != self.in_channels:
            remedy = "set in_channels to match" if len(shape) == 3 else "one sequence is a batch of one, x[None]"
            raise InputError(
                f"this layer takes batches of sequences with {self.in_channels} channels (b, {self.in_channels}, n), "
                f"not a tensor of shape {shape}: {remedy}"
            )
        if shape[2] % self.stride:
            raise InputError(
                f"sequences of length {shape[2]} cannot be downsampled by the stride {self.stride}: pad them to a "
                "multiple of it"
            )

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
