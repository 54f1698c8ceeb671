"""The base class of parametrizations: maps from a free kernel to an operator with singular values at most one."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from lotnet.errors import InputError
from lotnet.linalg.fourier import Grid
from lotnet.operators import Grouped, Operator

PaddingMode = Literal["zeros", "circular"]
KernelSize = int | tuple[int, int]
"""The side of a square kernel, or (rows, columns) of another."""


def sides(kernel_size: KernelSize) -> tuple[int, int]:
    """A kernel's rows and columns."""
    return (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size


@dataclass(frozen=True)
class Geometry:
    """A stride-one convolution on images of one size; the input has been downsampled already.

    Channels are those of one group. Each of `groups` consecutive groups of them has a kernel of its own.
    """

    out_channels: int
    in_channels: int
    kernel_size: KernelSize
    height: int
    width: int
    padding_mode: PaddingMode = "zeros"
    groups: int = 1

    @property
    def grid(self) -> Grid:
        """The periodic grid: the image itself if the padding is circular, else with k//2 zeros added on each side."""
        rows, columns = (0 if self.padding_mode == "circular" else k // 2 for k in sides(self.kernel_size))
        return Grid(self.height, self.width, rows if rows == columns else (rows, columns))

    def check(self) -> None:
        grid = self.grid
        rows, columns = sides(self.kernel_size)
        if rows > grid.rows or columns > grid.columns:
            raise InputError(
                f"a kernel of size {self.kernel_size} does not fit the padded image of "
                f"{grid.rows} x {grid.columns}: use a smaller kernel_size or larger images"
            )


class Parametrization(ABC):
    """A stateless map from a free kernel to an operator: a frozen dataclass of settings.

    Invariants, tested for every entry of `PARAMETRIZATIONS`:

    * the operator's largest singular value is at most `lipschitz_bound` up to rounding, for finite weights;
    * value and gradient are finite for every weight of size 1e-15 to 1e15, and for zero and rank-deficient ones
      (beyond, sums and the gradient's own scale leave float32's range);
    * `orthogonal = True` promises that circular padding and out_channels >= in_channels preserve norms;
    * `frozen=True` asks for the most accurate operator, in the weight's dtype (float64 when freezing), and for no
      gradient with respect to the weight;
    * kernels may be rectangular: `kernel_size` is one number for square ones, else (rows, columns);
    * the weight's dtype is float32 or float64, and the operator's is the same.
    """

    orthogonal: bool = True

    def weight_shape(self, out_channels: int, in_channels: int, kernel_size: KernelSize) -> tuple[int, ...]:
        """Shape of the free kernel; a plain convolution kernel unless overridden."""
        return (out_channels, in_channels, *sides(kernel_size))

    def initial_weight(self, out_channels: int, in_channels: int, kernel_size: KernelSize) -> Tensor:
        """Initial weight: its operator is the identity if the channels are equal, and random otherwise."""
        shape = self.weight_shape(out_channels, in_channels, kernel_size)
        if out_channels != in_channels:
            return torch.randn(shape) / (in_channels * math.prod(sides(kernel_size))) ** 0.5
        weight = torch.zeros(shape)
        row, column = ((k - 1) // 2 for k in sides(kernel_size))
        weight[:, :, row, column] = torch.eye(out_channels)
        return weight

    def lipschitz_bound(self, kernel_size: KernelSize, frozen: bool = False) -> float:
        """Upper bound of the largest singular value in exact arithmetic; 1 unless overridden."""
        return 1.0

    @abstractmethod
    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        """The convolution that `weight` defines on images of this geometry, of one group."""

    def grouped(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        """The convolution of all groups, whose kernels follow one another in `weight`.

        By default they are computed and applied one after another.
        """
        if geometry.groups == 1:
            return self.operator(weight, geometry, frozen)
        one = replace(geometry, groups=1)
        return Grouped(tuple(self.operator(kernel, one, frozen) for kernel in weight.chunk(geometry.groups)))
