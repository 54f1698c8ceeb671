"""Spectral: one singular value is one, the others keep their proportions."""

import pytest
import torch

from lotnet.linalg.fourier import transfer
from lotnet.operators import Kernel
from lotnet.parametrizations import Geometry, Spectral


@pytest.mark.parametrize("padding_mode", ("zeros", "circular"))
@pytest.mark.parametrize("k", (1, 2, 3, 5))
def test_the_kernel_is_divided_by_its_norm(k: int, padding_mode: str) -> None:
    weight = torch.randn(3, 4, k, k, dtype=torch.float64, generator=torch.Generator().manual_seed(k))
    geometry = Geometry(3, 4, k, 8, 9, padding_mode)
    for scale in (1e-300, 1e-20, 1.0, 1e20, 1e300):
        operator = Spectral().operator(scale * weight, geometry)
        assert isinstance(operator, Kernel)
        norm = torch.linalg.matrix_norm(transfer(operator.kernel, geometry.grid), ord=2).max()
        assert norm.item() == pytest.approx(1, abs=1e-13)
        assert torch.allclose(operator.kernel / operator.kernel.norm(), weight / weight.norm(), atol=1e-13)


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
