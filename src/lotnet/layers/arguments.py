"""Arguments that convolutions share with PyTorch's: pairs, padding and borders."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import nn

from lotnet.errors import InputError
from lotnet.layers.base import is_size
from lotnet.parametrizations.base import PaddingMode

Pair = tuple[int, int]
Device = torch.device | str | int | None


def pair(name: str, size: Any) -> Pair:
    """A size as (rows, columns): one whole number counts for both."""
    sizes = tuple(size) if isinstance(size, Sequence) and not isinstance(size, str) else (size, size)
    if len(sizes) != 2 or not all(is_size(n) for n in sizes):
        raise InputError(f"{name} must be one or two whole numbers, at least 1, not {size!r}")
    return (int(sizes[0]), int(sizes[1]))


def single(name: str, size: Any) -> int:
    """A size along one axis: a whole number, or a sequence of one."""
    sizes = tuple(size) if isinstance(size, Sequence) and not isinstance(size, str) else (size,)
    if len(sizes) != 1 or not is_size(sizes[0]):
        raise InputError(f"{name} must be one whole number, at least 1, not {size!r}")
    return int(sizes[0])


def compact(sizes: Pair) -> int | Pair:
    """One number for two equal ones, as people write them."""
    return sizes[0] if sizes[0] == sizes[1] else sizes


def place(layer: nn.Module, device: Device, dtype: torch.dtype | None) -> None:
    """Move a new layer to a device and a precision, the last two arguments of PyTorch's layers."""
    if dtype is not None and not dtype.is_floating_point:
        raise InputError(f"dtype must be a floating-point type, such as torch.float32, not {dtype}")
    layer.to(device=device, dtype=dtype)


def check_padding(padding: Any, kernel_size: tuple[int, ...], dilation: tuple[int, ...]) -> None:
    """Accept "same" and the numbers that equal it, `dilation (kernel_size - 1) / 2` along each axis."""
    if padding == "same":
        return
    wanted = tuple(d * (k - 1) / 2 for k, d in zip(kernel_size, dilation, strict=True))
    many = isinstance(padding, Sequence) and not isinstance(padding, str)
    given = tuple(padding) if many else (padding,) * len(wanted)
    if given != wanted:
        whole = all(n == int(n) for n in wanted)
        numbers = f" or {tuple(map(int, wanted)) if len({*wanted}) > 1 else int(wanted[0])}" if whole else ""
        raise InputError(
            f"padding must keep the size of the image, because a smaller one loses norm, not {padding!r}: use "
            f'padding="same"{numbers}, and padding_mode for the border'
        )


def check_padding_mode(padding_mode: Any) -> PaddingMode:
    if padding_mode in ("reflect", "replicate"):
        raise InputError(
            f"padding_mode {padding_mode!r} copies pixels at the border, which enlarges differences: choose zeros or "
            "circular"
        )
    if padding_mode not in ("zeros", "circular"):
        raise InputError(f"unknown padding_mode {padding_mode!r}: choose zeros or circular")
    return cast(PaddingMode, padding_mode)
