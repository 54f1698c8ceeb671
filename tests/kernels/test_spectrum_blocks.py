"""Blocks of all frequencies in one kernel, against plain PyTorch, forward and backward."""

import interpreted  # noqa: F401  before the kernels
import pytest
import torch

from lotnet.kernels.spectrum_blocks import spectrum_blocks
from lotnet.linalg.complex_layout import real_blocks
from lotnet.linalg.fourier import Grid, distinct_parts, expand, joined_parts, spectrum_index

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("grid", (Grid(2, 2, 1), Grid(3, 4, 1), Grid(4, 4), Grid(5, 3)), ids=str)
@pytest.mark.parametrize("joined", (False, True))
def test_spectrum_blocks_equal_expand_then_real_blocks(grid: Grid, joined: bool) -> None:
    torch.manual_seed(0)
    kernel = torch.randn(6, 4, 3, 3, device=DEVICE, requires_grad=True)
    reals, pairs = distinct_parts(kernel, grid)
    expected = real_blocks(expand(reals[:, 0], torch.complex(pairs[:, 0], pairs[:, 1]), grid))
    if joined:
        reals, pairs = kernel.new_empty(0), joined_parts(kernel, grid)
    actual = spectrum_blocks(reals, pairs, spectrum_index(grid, kernel.device))
    assert (actual - expected).abs().max() < 1e-6
    g = torch.randn_like(expected)
    (ours,), (theirs,) = (torch.autograd.grad(blocks, kernel, g, retain_graph=True) for blocks in (actual, expected))
    assert (ours - theirs).abs().max() < 1e-5
