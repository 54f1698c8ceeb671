"""BCOP: its finite kernel, and its initial weight."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.linalg.fourier import Grid, transfer
from lotnet.operators import Kernel
from lotnet.parametrizations import BCOP, Geometry


def kernel_of(weight: Tensor, o: int, i: int, k: int) -> Tensor:
    operator = BCOP().operator(weight, Geometry(o, i, k, 8, 8), frozen=True)
    assert isinstance(operator, Kernel)
    return operator.kernel


def random_weight(o: int, i: int, k: int) -> Tensor:
    g = torch.Generator().manual_seed(k)
    return torch.randn(BCOP().weight_shape(o, i, k), generator=g, dtype=torch.float64)


@pytest.mark.parametrize("k", (1, 2, 3, 4, 5))
@pytest.mark.parametrize("o, i", ((1, 1), (2, 2), (5, 5), (5, 3), (3, 5)))
def test_a_finite_kernel_is_orthogonal_on_every_grid(o: int, i: int, k: int) -> None:
    kernel = kernel_of(random_weight(o, i, k), o, i, k)
    assert kernel.shape == (o, i, k, k)
    for side in (5, 6, 11):
        values = torch.linalg.svdvals(transfer(kernel, Grid(side, side)))
        assert values.max() <= 1 + 1e-12
        assert o < i or values.min() >= 1 - 1e-12


def test_two_steps_are_two_convolutions() -> None:
    """The kernel for k = 2 written out: rows first, then columns."""
    weight = random_weight(4, 4, 2)
    q, _, r = torch.linalg.svd(weight)
    matrix, *projectors = (q @ r).unbind()
    p, s = (basis[:, :2] @ basis[:, :2].T for basis in projectors)
    eye = torch.eye(4, dtype=torch.float64)
    expected = torch.empty(4, 4, 2, 2, dtype=torch.float64)
    for y, row in enumerate((p, eye - p)):
        for x, column in enumerate((s, eye - s)):
            expected[:, :, y, x] = column @ row @ matrix
    assert torch.allclose(kernel_of(weight, 4, 4, 2), expected, atol=1e-12)


@pytest.mark.parametrize("c", (1, 2, 5))
@pytest.mark.parametrize("k", (1, 3, 5))
def test_starts_at_the_identity_for_odd_kernels(c: int, k: int) -> None:
    kernel = kernel_of(BCOP().initial_weight(c, c, k).double(), c, c, k)
    delta = F.pad(torch.eye(c, dtype=torch.float64)[:, :, None, None], (k // 2,) * 4)
    assert torch.allclose(kernel, delta, atol=1e-14)


def test_starts_with_half_of_the_channels_shifted_for_even_kernels() -> None:
    kernel = kernel_of(BCOP().initial_weight(4, 4, 2).double(), 4, 4, 2)
    expected = torch.zeros_like(kernel)
    expected[[0, 1], [0, 1], 0, 0] = 1
    expected[[2, 3], [2, 3], 1, 1] = 1
    assert torch.allclose(kernel, expected, atol=1e-14)


def test_paddings_share_the_kernel_so_the_interior_is_equal() -> None:
    weight = random_weight(3, 3, 3)
    x = torch.randn(1, 3, 8, 8, dtype=torch.float64)
    zeros, circular = (
        BCOP().operator(weight, Geometry(3, 3, 3, 8, 8, mode)).apply(x) for mode in ("zeros", "circular")
    )
    assert torch.allclose(zeros[..., 1:-1, 1:-1], circular[..., 1:-1, 1:-1], atol=1e-12)
    assert (zeros - circular).abs().max() > 1e-3
