"""Frozen branches whose outputs are added or concatenated."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from lotnet.frozen.base import FrozenContainer, FrozenModule, Shape
from lotnet.linalg.roundoff import Upper, rounding_error


class FrozenResidual(FrozenModule):
    """`a g(x) + b f(x)`, g the shortcut: Lipschitz with constant `|a| L_g + |b| L_f`; `weights` holds a and b."""

    TENSORS: ClassVar[Mapping[str, str]] = {"weights": "2"}
    weights: Tensor

    def __init__(
        self,
        precision: torch.dtype,
        settings: dict[str, Any],
        tensors: dict[str, Tensor],
        shortcut: FrozenModule,
        block: FrozenModule,
    ) -> None:
        super().__init__(precision, settings, tensors)
        self.shortcut = shortcut
        self.block = block

    def parts(self) -> list[FrozenModule]:
        return [self.shortcut, self.block]

    @classmethod
    def part_names(cls, count: int) -> list[str]:
        return ["shortcut", "block"]

    def forward(self, x: Tensor) -> Tensor:
        return self.weights[0] * self.shortcut(x) + self.weights[1] * self.block(x)

    def _prove_lipschitz(self) -> Upper:
        return self._mix(self.shortcut.lipschitz_bound(), self.block.lipschitz_bound())

    def _local_error(self, norm: Upper) -> Upper:
        error = self._mix(self.shortcut.rounding_bound(0.0, norm), self.block.rounding_bound(0.0, norm))
        return error + rounding_error(2, self.output_norm(norm) + error, self.precision)

    def output_norm(self, norm_in: float) -> Upper:
        return self._mix(self.shortcut.output_norm(norm_in), self.block.output_norm(norm_in))

    def _mix(self, direct: Upper, through: Upper) -> Upper:
        a, b = (abs(float(w)) for w in self.weights)
        return direct * a + through * b

    def named_layers(self, prefix: str) -> Iterator[tuple[str, FrozenModule]]:
        yield from self.shortcut.named_layers(f"{prefix}.shortcut")
        yield from self.block.named_layers(f"{prefix}.block")

    def output_shape(self, shape: Shape) -> Shape:
        return self.block.output_shape(shape)

    def fits(self, shape: Shape) -> bool:
        alike = self.shortcut.fits(shape) and self.block.fits(shape)
        return alike and self.shortcut.output_shape(shape) == self.block.output_shape(shape)


class FrozenConcatenation(FrozenContainer):
    """`scale (f_1(x), ..., f_n(x))`, concatenated along the channels.

    `||f(x) - f(y)||^2` is the sum over the branches, so the Lipschitz constant is `scale sqrt(L_1^2 + ... + L_n^2)`.
    Norms and errors of the branches are added in the same way.
    """

    TENSORS: ClassVar[Mapping[str, str]] = {"scale": ""}
    scale: Tensor  # ()

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self], dim=1) * self.scale

    def _prove_lipschitz(self) -> Upper:
        return self._combine([branch.lipschitz_bound() for branch in self])

    def _local_error(self, norm: Upper) -> Upper:
        error = self._combine([branch.rounding_bound(0.0, norm) for branch in self])
        return error + rounding_error(1, self.output_norm(norm) + error, self.precision)

    def output_norm(self, norm_in: float) -> Upper:
        return self._combine([branch.output_norm(norm_in) for branch in self])

    def _combine(self, parts: list[Upper]) -> Upper:
        return sum((part * part for part in parts), Upper(0)).sqrt() * abs(float(self.scale))

    def named_layers(self, prefix: str) -> Iterator[tuple[str, FrozenModule]]:
        for n, branch in enumerate(self):
            yield from branch.named_layers(f"{prefix}.branches.{n}")

    def output_shape(self, shape: Shape) -> Shape:
        shapes = [branch.output_shape(shape) for branch in self]
        return (sum(channels for channels, *_ in shapes), *shapes[0][1:])

    def fits(self, shape: Shape) -> bool:
        alike = all(branch.fits(shape) for branch in self)
        return alike and len({branch.output_shape(shape)[1:] for branch in self}) == 1
