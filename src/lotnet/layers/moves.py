"""Layers that only move entries: upsampling and channel shifts."""

import math

import torch
from torch import Tensor

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, Shape
from lotnet.frozen.moves import FrozenChannelShift, FrozenUpsampling, channels_to_windows, shift_channels
from lotnet.frozen.pointwise import stride_settings
from lotnet.layers.arguments import Pair, check_padding_mode, compact, pair
from lotnet.layers.base import LipschitzLayer, check_sizes
from lotnet.layers.structure import check_images
from lotnet.parametrizations.base import PaddingMode


class InvertibleUpsampling(LipschitzLayer):
    """Turn channels into windows of pixels, `stride` high and wide: the inverse of `InvertibleDownsampling`.

    >>> InvertibleUpsampling(2)(torch.zeros(1, 12, 4, 4)).shape
    torch.Size([1, 3, 8, 8])
    """

    def __init__(self, stride: int | Pair) -> None:
        super().__init__()
        self.stride = pair("stride", stride)

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, "InvertibleUpsampling")
        if x.shape[1] % math.prod(self.stride):
            raise InputError(
                f"{x.shape[1]} channels cannot be upsampled by {compact(self.stride)}: make them a multiple of "
                f"{math.prod(self.stride)}"
            )
        return channels_to_windows(x, self.stride)

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        return FrozenUpsampling(dtype, stride_settings(self.stride), {})

    def extra_repr(self) -> str:
        return f"{compact(self.stride)}"


class ChannelShift(LipschitzLayer):
    """Shift groups of channels by up to `kernel_size // 2` pixels, so that a 1 x 1 convolution sees its neighbours.

    Channels form kernel_size^2 groups of equal size, up to one channel. Group `kernel_size r + c` moves as tap (r, c)
    of a convolution does. With circular padding it is a permutation of the entries; with zeros, pixels that cross the
    border are lost.

    >>> x = torch.zeros(1, 9, 3, 3)
    >>> x[..., 1, 1] = 1
    >>> ChannelShift(3)(x)[0, 0].tolist()  # reads the pixel above and to the left
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(self, kernel_size: int = 3, padding_mode: PaddingMode = "zeros") -> None:
        super().__init__()
        check_sizes(kernel_size=kernel_size)
        if kernel_size % 2 == 0:
            raise InputError(f"ChannelShift needs an odd kernel_size, not {kernel_size}: 3 reads the nearest pixels")
        self.kernel_size = kernel_size
        self.padding_mode = check_padding_mode(padding_mode)

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, "ChannelShift")
        k = self.kernel_size
        if x.shape[1] < k**2 or min(x.shape[2:]) < k // 2:
            raise InputError(
                f"ChannelShift({k}) needs at least {k**2} channels and images of {k // 2} pixels, not a tensor of "
                f"shape {tuple(x.shape)}: use a smaller kernel_size"
            )
        return shift_channels(x, k, self.padding_mode)

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        return FrozenChannelShift(dtype, {"size": self.kernel_size, "padding_mode": self.padding_mode}, {})

    def extra_repr(self) -> str:
        return f"{self.kernel_size}, padding_mode={self.padding_mode!r}"
