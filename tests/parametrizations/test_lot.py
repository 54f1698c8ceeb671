"""LOT as a layer is the paper's Algorithm 1, where that has converged: values and gradients."""

import math

import pytest
import torch

from literal_lot import LiteralLOT, literal_lot
from lotnet.errors import InputError
from lotnet.layers import OrthogonalConv2d
from lotnet.parametrizations import LOT, Geometry


@pytest.mark.parametrize("padding_mode", ("zeros", "circular"))
@pytest.mark.parametrize("o, i", ((3, 3), (2, 4)))
@pytest.mark.parametrize("k", (1, 2, 3, 5))
def test_equals_the_paper(k: int, o: int, i: int, padding_mode: str) -> None:
    g = torch.Generator().manual_seed(k)
    weight = 0.1 * torch.randn(o, i, k, k, generator=g, dtype=torch.float64) / k
    weight[:, :, (k - 1) // 2, (k - 1) // 2] += torch.eye(o, i)
    weight.requires_grad_()
    x = torch.randn(2, i, 7, 6, generator=g, dtype=torch.float64, requires_grad=True)
    ours = LOT(tolerance=1e-14).operator(weight, Geometry(o, i, k, 7, 6, padding_mode)).apply(x)
    oracle = literal_lot(x, weight, padding_mode, steps=20)
    assert torch.allclose(ours, oracle, atol=1e-10)
    cotangent = torch.randn(ours.shape, generator=g, dtype=torch.float64)
    gradients, expected = (torch.autograd.grad(y, (x, weight), cotangent) for y in (ours, oracle))
    for actual, exact in zip(gradients, expected, strict=True):
        assert (actual - exact).norm() <= 1e-6 * exact.norm()


def test_the_literal_layer_has_our_signature() -> None:
    literal, ours = LiteralLOT(2, 8, 3, 2, "zeros", True), OrthogonalConv2d(2, 8, 3, 2).eval()
    with torch.no_grad():
        for layer in (literal, ours):
            layer.weight.zero_()
            layer.weight[:, :, 1, 1] = torch.eye(8)
            layer.weight[0, 1, 0, 2] = 0.3
            layer.bias.copy_(torch.arange(8))
        x = torch.randn(1, 2, 6, 10)
        assert torch.allclose(literal(x), ours(x), atol=1e-4)


def test_ten_steps_of_the_paper_leave_an_ill_conditioned_kernel_contractive() -> None:
    """Why this package has its own iteration: the paper's never exceeds one either, but falls short of it."""
    weight = torch.diag(torch.tensor([1.0, 1.0, 1e-3], dtype=torch.float64))[..., None, None]
    impulses = torch.eye(3, dtype=torch.float64)[..., None, None]
    literal = torch.linalg.svdvals(literal_lot(impulses, weight).flatten(1))
    ours = torch.linalg.svdvals(LOT().operator(weight, Geometry(3, 3, 1, 1, 1)).apply(impulses).flatten(1))
    assert literal[-1] < 0.1 and literal[0] <= 1 + 1e-12
    assert ours[-1] >= 1 - 1e-5 and ours[0] <= 1 + 1e-12


@pytest.mark.parametrize("tolerance", (0.0, -1.0, 1e-17, 1.0, math.nan))
def test_a_tolerance_that_no_iteration_reaches_is_refused(tolerance: float) -> None:
    with pytest.raises(InputError, match="tolerance from 1e-16 to below 1"):
        LOT(tolerance=tolerance)


@pytest.mark.parametrize("condition", (0.0, -3.0, 0.5, math.inf, math.nan))
def test_a_condition_number_is_at_least_one(condition: float) -> None:
    with pytest.raises(InputError, match="condition from 1 to 1e15"):
        LOT(condition=condition)
