"""Convolutions with every combination of kernel, stride, dilation, groups and padding, for every parametrization."""

import itertools
import math
import random
from dataclasses import dataclass
from typing import Any

from layer_cases import randomize

from lotnet import OrthogonalConv2d
from lotnet.layers.arguments import pair
from lotnet.parametrizations import PARAMETRIZATIONS
from lotnet.parametrizations.base import KernelSize, sides


@dataclass(frozen=True)
class Case:
    parametrization: str
    kernel_size: KernelSize
    stride: int | tuple[int, int]
    dilation: int
    groups: int
    padding_mode: str
    size: tuple[int, int]
    """Of the image, in windows of the stride."""

    def layer(self) -> OrthogonalConv2d:
        layer = OrthogonalConv2d(4, self.inner_channels, **self.arguments)
        return randomize(layer, seed=sum(self.size))

    @property
    def arguments(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "size"}

    @property
    def strides(self) -> tuple[int, int]:
        return pair("stride", self.stride)

    @property
    def inner_channels(self) -> int:
        """As many as keep all information."""
        return 4 * math.prod(self.strides)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (4, self.size[0] * self.strides[0], self.size[1] * self.strides[1])

    def exists(self) -> bool:
        """Circular images must be multiples of the dilation, and of the kernel for ECO, and not smaller than both."""
        if self.padding_mode == "zeros":
            return True
        for n, k in zip(self.size, sides(self.kernel_size), strict=True):
            d = self.dilation if k > 1 else 1
            if n % d or n // d < k or (self.parametrization == "eco" and n // d % k):
                return False
        return True


KERNELS = (1, 2, 3, 5, (1, 3), (3, 2), (4, 1))
GRID = [
    case
    for values in itertools.product(
        PARAMETRIZATIONS, KERNELS, (1, 2, 3, (1, 2)), (1, 2, 3), (1, 2, 4), ("zeros", "circular"), ((5, 3), (6, 12))
    )
    if (case := Case(*values)).exists() and (case.stride == 1 or case.size == (5, 3))  # larger ones would take hours
]


def sample(grid: list[Case]) -> list[Case]:
    """Cases in which every pair of values of two arguments occurs, chosen greedily from a shuffled list."""
    cases = random.Random(0).sample(grid, len(grid))
    seen: set[object] = set()
    chosen = []
    for case in cases:
        pairs = set(itertools.combinations(enumerate(vars(case).values()), 2))
        if not pairs <= seen:
            seen |= pairs
            chosen.append(case)
    return chosen
