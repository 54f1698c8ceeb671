"""Frozen activations that sort, fold or cut off entries."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch.nn.functional as F
from torch import Tensor

from lotnet.frozen.base import Exact, FrozenModule, Shape
from lotnet.linalg.roundoff import Upper, rounding_error
from lotnet.records import Between


def group_sort(x: Tensor, size: int) -> Tensor:
    """Sort each group of `size` channels, largest first. Group g has the channels g, g + c/size, g + 2 c/size, ..."""
    groups = x.unflatten(1, (size, x.shape[1] // size))
    return groups.sort(dim=1, descending=True).values.flatten(1, 2)


@dataclass(frozen=True)
class GroupSpec:
    """Groups of `size` channels."""

    size: Annotated[int, Between(1, 2**20)]


class FrozenGroupSort(Exact):
    """`group_sort`: it permutes the entries, so nothing is rounded.

    Proof that it is 1-Lipschitz: by the rearrangement inequality, `x.y` is largest if x and y are in the same order. So
    `||sort x - sort y||^2 = ||x||^2 + ||y||^2 - 2 sort x.sort y <= ||x - y||^2` for each group.
    """

    Spec = GroupSpec
    INPUT = "sg ..."
    spec: GroupSpec

    def sizes(self) -> dict[str, int]:
        return {"s": self.spec.size}

    def forward(self, x: Tensor) -> Tensor:
        return group_sort(x, self.spec.size)

    def output_shape(self, shape: Shape) -> Shape:
        return shape


class FrozenLeakyReLU(FrozenModule):
    """`max(x, 0) - slope max(-x, 0)`, with a slope for each channel: 0 for ReLU, -1 for the absolute value.

    Each entry's function is continuous and has the slope 1 on one side of zero and `slope` on the other. So its
    Lipschitz constant is `max(1, |slope|)`, and it maps 0 to 0. In the program one of the two terms is zero, so the sum
    is exact. The product rounds once, and not at all if the slope is -1, 0 or 1.
    """

    TENSORS: ClassVar[Mapping[str, str]] = {"slope": "c"}
    INPUT = "c ..."
    slope: Tensor  # c

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) - self.slope.view(-1, *(1,) * (x.ndim - 2)) * F.relu(-x)

    def _prove_lipschitz(self) -> Upper:
        return Upper(max(1.0, float(self.slope.abs().max())))

    def _local_error(self, norm: Upper) -> Upper:
        exact = ((self.slope == 0) | (self.slope.abs() == 1)).all()
        return Upper(0) if exact else rounding_error(1, self.lipschitz_bound() * norm, self.precision)

    def output_shape(self, shape: Shape) -> Shape:
        return shape


class FrozenHardtanh(Exact):
    """Entries cut off at `low` and `high`: a comparison, 1-Lipschitz because it projects on an interval."""

    TENSORS: ClassVar[Mapping[str, str]] = {"high": "", "low": ""}
    low: Tensor  # ()
    high: Tensor  # ()

    def forward(self, x: Tensor) -> Tensor:
        return x.maximum(self.low).minimum(self.high)

    def output_norm(self, norm_in: float) -> Upper:
        """No entry grows, if the interval contains zero; other intervals are not frozen."""
        return Upper(norm_in) if float(self.low) <= 0 <= float(self.high) else Upper(math.inf)

    def output_shape(self, shape: Shape) -> Shape:
        return shape
