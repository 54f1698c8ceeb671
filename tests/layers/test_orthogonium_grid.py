"""The singular-value test of orthogonium's own suite, written from its description, on our corresponding layers.

For each combination of sizes: 25 steps of SGD on random images, so that the kernel is none that a layer starts with;
then, in `eval()` mode and float32, the singular values of the layer's response to impulses. The largest is below
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
import torch.nn.functional as F
from layer_cases import dense
from torch import Tensor, nn

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


@torch.no_grad()
def singular_values(layer: nn.Module, sizes: Sizes) -> Tensor:
    """All singular values on periodic images, from the response to the impulses in one window.

    The layer commutes with shifts by a window. So the discrete Fourier transform over windows divides its matrix into
    one small matrix for each frequency.
    """
    s, side = (1 if sizes.transposed else sizes.stride), sizes.side
    impulses = torch.zeros(sizes.in_channels * s * s, sizes.in_channels, side, side)
    for n, (c, y, x) in enumerate(itertools.product(range(sizes.in_channels), range(s), range(s))):
        impulses[n, c, y, x] = 1
    response = layer(impulses).double()
    if sizes.transposed:
        response = F.pixel_unshuffle(response, sizes.stride)
    return torch.linalg.svdvals(torch.fft.fft2(response).permute(2, 3, 0, 1)).flatten()


def check(sizes: Sizes) -> None:
    torch.manual_seed(0)
    layer, channels, side = sizes.layer(), sizes.in_channels, sizes.side
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    for _ in range(25):
        optimizer.zero_grad()
        (-layer(torch.randn(1, channels, side, side)).mean()).backward()
        optimizer.step()
    values = singular_values(layer.eval(), sizes)
    smallest, largest = values.min(), values.max()
    assert largest < 1 + 5e-4
    assert 0.95 < smallest < 1 + 5e-4
    assert abs(values.square().mean() / largest.square() - 1) < 5e-4


@pytest.mark.parametrize("sizes", random.Random(0).sample([s for s in CASES if s.in_channels < 16], 12), ids=str)
def test_a_sample_of_the_grid(sizes: Sizes) -> None:
    check(sizes)


@pytest.mark.parametrize("transposed", (False, True))
def test_one_window_gives_all_singular_values(transposed: bool) -> None:
    sizes = Sizes(3, 2, 6, 2, 2, transposed=transposed)
    layer = sizes.layer().eval()
    with torch.no_grad():  # a layer with other singular values than one
        layer.register_forward_hook(lambda _, __, y: y * torch.linspace(1, 2, 6)[:, None, None])
    whole = torch.linalg.svdvals(dense(layer, (2, sizes.side, sizes.side), torch.float32).double())
    assert torch.allclose(singular_values(layer, sizes).sort().values, whole.sort().values, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_the_whole_grid(sizes: Sizes) -> None:
    check(sizes)
