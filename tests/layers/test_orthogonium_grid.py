"""The singular-value test of orthogonium's own suite, written from its description, on our corresponding layers.

For each combination of sizes: 25 steps of SGD on random images, so that the kernel is none that a layer starts with;
then, in `eval()` mode and float32, the singular values of the layer's response to every impulse. The largest is below
1 + 5e-4, the smallest between 0.95 and that, and the stable rank, relative to its largest possible value, within 5e-4
of one. The grids are those of orthogonium's test_orthogonality_conv.py and test_orthogonality_conv_transpose.py.

Images are 8 x 8 there. Where a dilated kernel does not fit a periodic image of 8 x 8, or a dilation does not divide it,
ours have the smallest side from 8 on that fits. A transposed layer of orthogonium returns a larger image, and ours one
of the stride's size, which is orthogonal on periodic images. With stride = kernel_size and no padding its kernel sees
each window alone: that is our kernel of size 1 with that stride.
"""

import itertools
import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from lotnet import OrthogonalConv2d, OrthogonalConvTranspose2d


@dataclass(frozen=True)
class Sizes:
    kernel_size: int
    in_channels: int
    out_channels: int
    stride: int
    groups: int
    dilation: int = 1
    transposed: bool = False

    def layer(self) -> nn.Module:
        sizes: dict[str, Any] = vars(self) | {"bias": False, "padding_mode": "circular"}
        return (OrthogonalConvTranspose2d if sizes.pop("transposed") else OrthogonalConv2d)(**sizes)

    @property
    def side(self) -> int:
        """Of the input: 8, or the smallest above it that the layer takes. Transposed layers read windows."""
        unit = self.dilation * (1 if self.transposed else self.stride)
        fits = (n for n in range(8, 100) if n % unit == 0 and n // unit >= self.kernel_size)
        return next(fits)


def grid(kernels, inputs, outputs, strides, groups, dilations=(1,), transposed=False) -> list[Sizes]:
    product = itertools.product(kernels, inputs, outputs, strides, groups, dilations)
    return [Sizes(*sizes, transposed=transposed) for sizes in product]


CASES = [
    *grid((1, 3, 5), (8, 16), (8, 16), (1, 2), (1, 2, 4)),  # standard
    *grid((2, 3, 4, 5), (8, 16), (8, 16), (1,), (1, 2, 4), (2,)),  # dilated
    *grid((2, 3, 4, 5), (8, 16), (8, 16), (2,), (1, 2, 4), (2, 3)),  # dilated and strided
    *grid((3, 4, 5), (2, 4, 32), (2, 4, 32), (2, 4), (1,)),  # strided
    *grid((2, 4), (8, 16), (8, 16), (1,), (1, 2, 4)),  # even
    *grid((1,), (4, 8, 32), (4, 8, 32), (1, 2), (1, 2)),  # the stride is the kernel's size
    *grid((1, 3, 5), (1, 2), (1, 2), (1, 2), (1,)),  # one channel, or two
    *grid((1, 2, 3), (4, 8, 16), (4, 8, 32), (1, 2), (1, 2), transposed=True),
]


def check(sizes: Sizes) -> None:
    torch.manual_seed(0)
    layer, channels, side = sizes.layer(), sizes.in_channels, sizes.side
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    for _ in range(25):
        optimizer.zero_grad()
        (-layer(torch.randn(1, channels, side, side)).mean()).backward()
        optimizer.step()
    n = channels * side**2
    with torch.no_grad():
        response = layer.eval()(torch.eye(n).view(n, channels, side, side)).flatten(1).double()
    gram = response @ response.T if len(response) <= response.shape[1] else response.T @ response
    squares = torch.linalg.eigvalsh(gram)
    smallest, largest = squares[0].clamp_min(0).sqrt(), squares[-1].sqrt()
    assert largest < 1 + 5e-4
    assert 0.95 < smallest < 1 + 5e-4
    assert abs(squares.sum() / (squares[-1] * len(squares)) - 1) < 5e-4


@pytest.mark.parametrize("sizes", random.Random(0).sample([s for s in CASES if s.in_channels < 16], 12), ids=str)
def test_a_sample_of_the_grid(sizes: Sizes) -> None:
    check(sizes)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_the_whole_grid(sizes: Sizes) -> None:
    check(sizes)
