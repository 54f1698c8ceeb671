"""Cayley: the formula, and the limit on its scale."""

import pytest
import torch

from lotnet.operators import Spectrum
from lotnet.parametrizations import Cayley, Geometry
from lotnet.parametrizations.cayley import _LARGEST, _cayley


@pytest.mark.parametrize("dtype", (torch.float64, torch.complex128))
def test_equals_the_formula(dtype: torch.dtype) -> None:
    w = torch.randn(4, 5, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    eye = torch.eye(3, dtype=dtype)
    u, v = w[:, :3], w[:, 3:]
    a = u - u.mH + v.mH @ v
    inverse = torch.linalg.inv(eye + a)
    expected = torch.cat(((eye - a) @ inverse, -2 * v @ inverse), dim=1)
    assert torch.allclose(_cayley(w), expected, atol=1e-13)
    assert torch.allclose(_cayley(w.mH.resolve_conj()), expected.mH, atol=1e-13)
    a = u - u.mH
    assert torch.allclose(_cayley(u), (eye - a) @ torch.linalg.inv(eye + a), atol=1e-13)


@pytest.mark.parametrize("dtype", (torch.complex64, torch.complex128))
@pytest.mark.parametrize("shape", ((48, 48), (64, 48), (96, 48), (48, 64), (33, 33)))
def test_is_orthogonal_at_any_scale(shape: tuple[int, int], dtype: torch.dtype) -> None:
    for scale in (1e-6, 1e-3, 1.0, 10.0, 1e3, 1e6, 1e12):
        w = (scale * torch.randn(4, *shape, generator=torch.Generator().manual_seed(1), dtype=dtype)).requires_grad_()
        q = _cayley(w)
        values = torch.linalg.svdvals(q.detach().to(torch.complex128))
        assert (values - 1).abs().max() <= (1e-4 if dtype == torch.complex64 else 1e-12)
        q.real.sum().backward()
        assert w.grad is not None and torch.isfinite(torch.view_as_real(w.grad)).all()


def test_scale_matters_only_below_the_limit() -> None:
    w = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(_cayley(w), _cayley(2 * w), atol=1e-2)
    assert torch.allclose(_cayley(10 * _LARGEST * w), _cayley(1e4 * _LARGEST * w), atol=1e-9)


def test_a_kernel_of_size_one_needs_no_frequencies() -> None:
    weight = torch.randn(3, 2, 1, 1, dtype=torch.float64)
    geometry = Geometry(3, 2, 1, 4, 5, "circular")
    x = torch.randn(2, 2, 4, 5, dtype=torch.float64)
    matrix = _cayley(weight.flatten(1)).to(torch.complex128)
    everywhere = Spectrum(matrix.expand(geometry.grid.frequencies, 3, 2), geometry.grid)
    assert torch.allclose(Cayley().operator(weight, geometry).apply(x), everywhere.apply(x), atol=1e-13)
