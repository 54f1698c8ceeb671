"""Convert an operator to the frozen module that stores it, which depends on the operator and the image's shape only."""

from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from lotnet.frozen.base import FrozenModule, Shape
from lotnet.frozen.convolution import FrozenConvolution, FrozenDense, FrozenKernel, FrozenSeries, FrozenSpectrum
from lotnet.frozen.direct_sum import FrozenDilated, FrozenGrouped
from lotnet.linalg.fourier import full_kernel
from lotnet.operators import Dilated, Grouped, Kernel, Operator, Series, Spectrum

# Freezing shrinks every operator but a series by this factor before rounding to float32, so that the rounding of the
# entries does not push the largest singular value above one. (In float64 no such rounding happens.)
_SHRINK = 1 - 2.0**-20


@singledispatch
def freeze_operator(operator: Operator, shape: Shape, bias: Tensor | None, dtype: torch.dtype) -> FrozenModule:
    """Store a float64 operator for images of `shape` (i, h, w).

    An operator without a registered function is stored as its dense matrix. Forms that need less storage are
    registered below.
    """
    return _dense(_matrix(operator, shape), shape, bias, dtype)


@freeze_operator.register
def _(operator: Spectrum, shape: Shape, bias: Tensor | None, dtype: torch.dtype) -> FrozenModule:
    """Store one matrix per frequency, or the dense matrix if that is no larger: images of up to 2 x 2 pixels."""
    _, h, w = shape
    grid, transfers, shrink = operator.grid, operator.transfers, _shrink(dtype)
    groups = transfers.shape[1] if transfers.ndim == 4 else 1
    if (h * w) ** 2 <= 4 * grid.frequencies:
        if groups > 1:
            parts = tuple(Spectrum(group, grid) for group in transfers.unbind(1))
            return freeze_operator(Grouped(parts), shape, bias, dtype)
        return _dense(_spectrum_matrix(operator), shape, bias, dtype)
    rows = transfers.flatten(1, -2) * shrink  # f go i
    tensors = {"real": rows.real, "imaginary": rows.imag, "bias": _bias(bias, rows.shape[1])}
    padding = grid.padding if isinstance(grid.padding, int) else list(grid.padding)
    settings = {"height": h, "width": w, "padding": padding} | ({"groups": groups} if groups > 1 else {})
    return FrozenSpectrum(dtype, settings, tensors)


@freeze_operator.register
def _(operator: Kernel, shape: Shape, bias: Tensor | None, dtype: torch.dtype) -> FrozenConvolution:
    tensors = {"kernel": operator.kernel * _shrink(dtype), "bias": _bias(bias, operator.kernel.shape[0])}
    return FrozenKernel(dtype, _kernel_settings(operator, shape), tensors)


@freeze_operator.register
def _(operator: Series, shape: Shape, bias: Tensor | None, dtype: torch.dtype) -> FrozenConvolution:
    settings = {"terms": operator.terms, "out_channels": operator.out_channels}
    tensors = {"kernel": operator.skew.kernel, "bias": _bias(bias, operator.out_channels)}
    return FrozenSeries(dtype, _kernel_settings(operator.skew, shape) | settings, tensors)


@freeze_operator.register
def _(operator: Grouped, shape: Shape, bias: Tensor | None, dtype: torch.dtype) -> FrozenModule:
    count = len(operator.groups)
    part = (shape[0] // count, *shape[1:])
    biases = [None] * count if bias is None else bias.chunk(count)
    stages = [freeze_operator(group, part, b, dtype) for group, b in zip(operator.groups, biases, strict=True)]
    return FrozenGrouped(dtype, {}, {}, *stages)


@freeze_operator.register
def _(operator: Dilated, shape: Shape, bias: Tensor | None, dtype: torch.dtype) -> FrozenModule:
    phases, (c, h, w) = operator.phases, shape
    inner = freeze_operator(operator.inner, (c, *phases.size(h, w)), bias, dtype)
    settings: dict[str, Any] = {"height": h, "width": w}
    settings |= {"dilation": list(phases.dilation), "shift": list(phases.shift)}
    settings |= {"circular": phases.circular} | ({"transposed": True} if phases.transposed else {})
    return FrozenDilated(dtype, settings, {}, inner)


def _dense(matrix: Tensor, shape: Shape, bias: Tensor | None, dtype: torch.dtype) -> FrozenConvolution:
    _, h, w = shape
    tensors = {"matrix": matrix * _shrink(dtype), "bias": _bias(bias, len(matrix) // (h * w))}
    return FrozenDense(dtype, {"height": h, "width": w}, tensors)


def _shrink(dtype: torch.dtype) -> float:
    return _SHRINK if dtype == torch.float32 else 1.0


def _bias(bias: Tensor | None, channels: int) -> Tensor:
    return torch.zeros(channels, dtype=torch.float64) if bias is None else bias


def _matrix(operator: Operator, shape: Shape) -> Tensor:  # (o h w) x (i h w), pixels before channels
    i, h, w = shape
    impulses = torch.eye(i * h * w, dtype=torch.float64).view(-1, h, w, i).permute(0, 3, 1, 2)
    return operator.apply(impulses).permute(0, 2, 3, 1).flatten(1).T


def _spectrum_matrix(operator: Spectrum) -> Tensor:
    """`_matrix` of a spectrum: the block of a pair of pixels is the tap at the distance between them.

    The kernel is as large as the periodic grid. Its few taps take far less work than the operator on all impulses.
    """
    grid = operator.grid
    kernel = full_kernel(operator.transfers, grid)  # o i rows columns
    o, i = kernel.shape[:2]
    rows, columns = (
        (torch.arange(size) - torch.arange(size)[:, None] + (period - 1) // 2) % period
        for size, period in ((grid.height, grid.rows), (grid.width, grid.columns))
    )
    taps = kernel[:, :, rows[:, None, :, None], columns[None, :, None, :]]  # o i h w h w
    pixels = grid.height * grid.width
    return taps.permute(2, 3, 0, 4, 5, 1).reshape(pixels * o, pixels * i)


def _kernel_settings(kernel: Kernel, shape: Shape) -> dict[str, Any]:
    return {
        "height": shape[1],
        "width": shape[2],
        "padding_mode": kernel.padding_mode,
        "dilation": list(kernel.dilation),
        "extra": list(kernel.extra),
    }
