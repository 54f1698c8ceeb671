"""Operators that are one matrix per frequency, or one for each group of channels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from lotnet.linalg.complex_layout import real_blocks
from lotnet.linalg.fourier import Grid, batch_last, convolve
from lotnet.operators.base import Operator


@dataclass(frozen=True, eq=False)
class Spectrum(Operator):
    """One complex matrix per frequency of the half spectrum of `grid`, for each group of channels if there are any."""

    transfers: Tensor  # f o i, or f g o i
    grid: Grid

    def apply(self, x: Tensor) -> Tensor:
        return convolve(x, real_blocks(self.transfers), self.grid)

    def arranged(self, x: Tensor) -> Tensor:
        return batch_last(x)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.transfers,)

    def with_tensors(self, tensors: Sequence[Tensor]) -> Self:
        return replace(self, transfers=tensors[0])

    def adjoint(self, in_channels: int) -> "Spectrum":
        return replace(self, transfers=self.transfers.mH)

    def norm_matrices(self) -> Tensor:
        return real_blocks(self.transfers).flatten(0, -3)


@dataclass(frozen=True, eq=False)
class Blocks(Operator):
    """A `Spectrum` stored as real blocks, which are ready to apply: the result of the fast training path."""

    blocks: Tensor  # f 2o 2i, or f g 2o 2i
    grid: Grid

    def apply(self, x: Tensor) -> Tensor:
        return convolve(x, self.blocks, self.grid)

    def arranged(self, x: Tensor) -> Tensor:
        return batch_last(x)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.blocks,)

    def with_tensors(self, tensors: Sequence[Tensor]) -> Self:
        return replace(self, blocks=tensors[0])

    def adjoint(self, in_channels: int) -> "Blocks":
        return replace(self, blocks=self.blocks.mT)

    def norm_matrices(self) -> Tensor:
        return self.blocks.flatten(0, -3)
