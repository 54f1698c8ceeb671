"""Frequencies that are conjugates of others need not be computed."""

import pytest
import torch

from lotnet.linalg.fourier import Grid, distinct_transfers, expand, transfer

GRIDS = [Grid(h, w, p) for h, w in ((2, 2), (3, 4), (4, 3), (5, 5), (6, 4), (1, 1)) for p in (1, 2)]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_distinct_matrices_make_up_the_half_spectrum(grid: Grid) -> None:
    torch.manual_seed(0)
    kernel = torch.randn(3, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    reals, pairs = distinct_transfers(kernel, grid)
    assert not reals.is_complex()
    expanded = expand(reals, pairs, grid)
    assert torch.allclose(expanded, transfer(kernel, grid), atol=1e-14)
    cotangent = torch.randn_like(expanded)
    (through_distinct,) = torch.autograd.grad(expanded, kernel, cotangent, retain_graph=True)
    (direct,) = torch.autograd.grad(transfer(kernel, grid), kernel, cotangent)
    assert torch.allclose(through_distinct, direct, atol=1e-12)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_as_many_real_numbers_as_pixels(grid: Grid) -> None:
    """Nothing is computed twice: one real number for a real frequency, two for a conjugate pair."""
    reals, pairs = distinct_transfers(torch.zeros(1, 1, 3, 3), grid)
    assert len(reals) + 2 * len(pairs) == grid.rows * grid.columns
    assert len(reals) == grid.self_conjugates
