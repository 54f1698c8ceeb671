"""Frozen branches whose outputs are concatenated."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from torch import Tensor

from lotnet.frozen.base import FrozenContainer, FrozenModule, Shape
from lotnet.linalg.roundoff import Upper, rounding_error


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
