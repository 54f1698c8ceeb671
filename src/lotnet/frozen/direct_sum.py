"""Frozen convolutions that act on parts of an image independently: groups of channels, and phases of a dilation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from lotnet.frozen.base import FrozenContainer, ImageSize, NoSettings, Shape, Size
from lotnet.frozen.convolution import FrozenConvolution
from lotnet.linalg.roundoff import Upper
from lotnet.operators import Phases
from lotnet.records import Between, WrongType


class FrozenDirectSum(FrozenContainer):
    """Frozen convolutions on parts of the input: its norm squared is the sum of the squared norms of its parts.

    Proof of the bounds. The Lipschitz constant is the largest of the parts'. The error and the output's norm of a
    convolution are at most `a n + b` for inputs of norm n, where the module's bound at n is at least that, and its
    bound at 0 at least b. By Minkowski's inequality, in l2 all parts together have at most

        (sum_i (a_i n_i + b_i)^2)^(1/2)  <=  max_i a_i (sum_i n_i^2)^(1/2) + (sum_i b_i^2)^(1/2),

    so the largest bound at the whole norm, plus the root of the squared bounds at 0, holds. Moving entries is exact.
    """

    def _first(self) -> Any:
        return self.stages[0]

    def _copies(self) -> int:
        """How many parts each stage acts on."""
        return 1

    def fits(self, shape: Shape) -> bool:
        """The proof is about convolutions. These keep the size of an image, which `Phases.join` relies on."""
        convolutions = all(isinstance(part, FrozenConvolution | FrozenDirectSum) for part in self)
        return super().fits(shape) and len(self.stages) > 0 and convolutions

    def _prove_lipschitz(self) -> Upper:
        return Upper(max(part.lipschitz_bound() for part in self))

    def _local_error(self, norm: Upper) -> Upper:
        return self._combine([(part.rounding_bound(0.0, norm), part.rounding_bound(0.0, 0.0)) for part in self])

    def output_norm(self, norm_in: float) -> Upper:
        return self._combine([(part.output_norm(norm_in), part.output_norm(0.0)) for part in self])

    def _combine(self, bounds: list[tuple[Upper, Upper]]) -> Upper:
        at_zero = sum((zero * zero for _, zero in bounds), Upper(0)) * self._copies()
        return Upper(max(whole for whole, _ in bounds)) + at_zero.sqrt()

    def orthogonality_error(self) -> float | None:
        known = [error for part in self if (error := part.orthogonality_error()) is not None]
        return max(known, default=None)


class FrozenGrouped(FrozenDirectSum):
    """A convolution for each of equal, consecutive groups of channels."""

    Spec = NoSettings

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(group) for part, group in zip(self, x.chunk(len(self.stages), dim=1), strict=True)], 1)

    def output_shape(self, shape: Shape) -> Shape:
        part = self._part(shape)
        return (sum(stage.output_shape(part)[0] for stage in self), *self._first().output_shape(part)[1:])

    def fits(self, shape: Shape) -> bool:
        if not super().fits(shape) or not shape or shape[0] % len(self.stages):
            return False
        part = self._part(shape)
        return all(stage.fits(part) for stage in self) and len({stage.output_shape(part)[1:] for stage in self}) == 1

    def _part(self, shape: Shape) -> Shape:
        return (shape[0] // len(self.stages), *shape[1:])


@dataclass(frozen=True)
class PhasesSpec(ImageSize):
    """The image's size, and how it is divided."""

    dilation: tuple[Size, ...]
    shift: tuple[Annotated[int, Between(0, 4096)], ...]
    circular: bool
    transposed: bool = False

    @property
    def phases(self) -> Phases:
        (dh, dw), (down, right) = self.dilation, self.shift
        return Phases((dh, dw), (down, right), self.circular, self.transposed)


class FrozenDilated(FrozenDirectSum):
    """The same convolution on each phase of a dilation: see `operators.Phases`."""

    Spec = PhasesSpec
    INPUT = "c h w"
    spec: PhasesSpec

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        if not len(self.spec.dilation) == len(self.spec.shift) == 2:
            raise WrongType("dilation and shift must be pairs")

    def forward(self, x: Tensor) -> Tensor:
        phases, inner = self.spec.phases, self._first()
        return phases.join(inner(phases.split(inner.arranged(x))), x.shape[-2], x.shape[-1])

    def _copies(self) -> int:
        return self.spec.phases.count

    def output_shape(self, shape: Shape) -> Shape:
        return (self._first().output_shape(self._part(shape))[0], *shape[1:])

    def fits(self, shape: Shape) -> bool:
        if not super().fits(shape) or len(self.stages) != 1:
            return False
        (dh, dw), (_, height, width) = self.spec.phases.dilation, shape
        divides = not self.spec.circular or (height % dh, width % dw) == (0, 0)
        return divides and self._first().fits(self._part(shape))

    def _part(self, shape: Shape) -> Shape:
        return (shape[0], *self.spec.phases.size(*shape[1:]))
