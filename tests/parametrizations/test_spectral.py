"""Spectral: the largest singular value is one, the others keep their proportions."""

import pytest
import torch

from lotnet.linalg.fourier import transfer
from lotnet.operators import Kernel
from lotnet.parametrizations import Geometry, Spectral
from lotnet.parametrizations.spectral import estimated_norm


@pytest.mark.parametrize("padding_mode", ("zeros", "circular"))
@pytest.mark.parametrize("k", (1, 2, 3, 5))
def test_the_kernel_is_divided_by_its_norm(k: int, padding_mode: str) -> None:
    weight = torch.randn(3, 4, k, k, dtype=torch.float64, generator=torch.Generator().manual_seed(k))
    geometry = Geometry(3, 4, k, 8, 9, padding_mode)
    for scale in (1e-300, 1e-20, 1.0, 1e20, 1e300):
        for frozen in (False, True):
            operator = Spectral().operator(scale * weight, geometry, frozen)
            assert isinstance(operator, Kernel)
            norm = torch.linalg.matrix_norm(transfer(operator.kernel, geometry.grid), ord=2).max()
            assert 1 - (1e-7 if frozen else 1e-4) <= norm.item() <= 1 + 1e-14
            assert torch.allclose(operator.kernel / operator.kernel.norm(), weight / weight.norm(), atol=1e-13)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.complex64, torch.complex128))
@pytest.mark.parametrize("shape", ((1, 1, 1), (6, 5, 5), (3, 12, 4), (2, 3, 40)))
def test_the_estimate_is_the_norm_up_to_a_hundredth_of_a_percent_and_so_is_its_gradient(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    v = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_()
    found, exact = estimated_norm(v), torch.linalg.matrix_norm(v.to(torch.complex128), ord=2).max()
    rounding = 1e-5 if dtype in (torch.float32, torch.complex64) else 1e-13
    assert 1 - rounding <= found.item() / exact.item() <= 1.0001 + rounding
    gradients = [torch.autograd.grad(value, v)[0] for value in (found, exact)]
    assert (gradients[0] - gradients[1]).norm() <= 2e-4


def test_equal_singular_values_and_a_zero_matrix_among_others_do_no_harm() -> None:
    v = torch.stack((torch.zeros(4, 4), torch.eye(4), torch.eye(4) / 3)).requires_grad_()
    norm = estimated_norm(v)
    norm.backward()
    assert norm.item() == pytest.approx(1, rel=1e-4)
    assert v.grad is not None and v.grad.norm().item() == pytest.approx(1, rel=1e-3)
    assert v.grad[1].abs().sum() == v.grad.abs().sum()


def test_the_gradient_is_orthogonal_to_scaling() -> None:
    """The operator does not depend on the scale, so moving along the weight does nothing."""
    weight = torch.randn(3, 3, 3, 3, dtype=torch.float64, requires_grad=True)
    y = Spectral().operator(weight, Geometry(3, 3, 3, 6, 6)).apply(torch.randn(1, 3, 6, 6, dtype=torch.float64))
    (gradient,) = torch.autograd.grad((y * torch.randn_like(y)).sum(), weight)
    assert abs((gradient * weight).sum().item()) <= 1e-10 * gradient.norm().item() * weight.norm().item()


def test_zero_stays_zero() -> None:
    weight = torch.zeros(2, 3, 3, 3, requires_grad=True)
    y = Spectral().operator(weight, Geometry(2, 3, 3, 6, 6)).apply(torch.ones(1, 3, 6, 6))
    assert not y.any()
    y.sum().backward()
    assert weight.grad is not None and torch.isfinite(weight.grad).all()
