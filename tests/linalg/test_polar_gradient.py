"""The derivative of the polar factor, and the two ways to solve its equation."""

import pytest
import torch
from matrix_cases import conditioned, svd_polar

from literal_lot import newton_polar
from lotnet.linalg import sylvester
from lotnet.linalg.polar import GRADIENT_CONDITION, GRADIENT_TOLERANCE, iterate, normalize, polar, pullback, sigma_min
from lotnet.linalg.polynomials import schedule

DTYPES = (torch.float64, torch.complex128)


@pytest.mark.parametrize("condition", (1.0, 30.0, 900.0))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ((5, 5), (3, 7)))
def test_gradient_equals_autograd_through_the_paper(
    shape: tuple[int, int], dtype: torch.dtype, condition: float
) -> None:
    v = conditioned(*shape, condition, dtype).requires_grad_()
    cotangent = torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    (ours,) = torch.autograd.grad(polar(v, tolerance=1e-12), v, cotangent)
    (oracle,) = torch.autograd.grad(newton_polar(v, steps=40), v, cotangent)
    assert (ours - oracle).norm() <= 1e-6 * oracle.norm()


@pytest.mark.parametrize("shape", ((5, 5), (3, 7), (7, 3)))
def test_gradient_at_the_training_tolerance(shape: tuple[int, int]) -> None:
    """The gradient's error is of the order of the tolerance; an unfinished iteration adds nothing to it."""
    v = conditioned(*shape, 20.0, torch.complex128).requires_grad_()
    cotangent = torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=v.dtype)
    (ours,) = torch.autograd.grad(polar(v), v, cotangent)
    (exact,) = torch.autograd.grad(polar(v, tolerance=1e-14), v, cotangent)
    assert (ours - exact).norm() <= 1e-3 * exact.norm()


@pytest.mark.parametrize("kind", ("zero", "rank one", "1e6", "1e9", "1e15"))
@pytest.mark.parametrize("shape", ((5, 5), (3, 7), (7, 3)))
def test_gradient_outside_the_interval_is_bounded(shape: tuple[int, int], kind: str) -> None:
    m, n = shape
    if kind == "zero":
        v = torch.zeros(1, m, n, dtype=torch.complex128)
    elif kind == "rank one":
        v = conditioned(m, 1, 1.0, torch.complex128) @ conditioned(1, n, 1.0, torch.complex128)
    else:
        v = conditioned(m, n, float(kind), torch.complex128)
    v.requires_grad_()
    cotangent = torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=v.dtype)
    (gradient,) = torch.autograd.grad(polar(v, condition=1e3), v, cotangent)
    # S is at most ||M - M*|| / (2 lower) <= ||G|| / lower, the second term ||G|| / lower, and W at most one.
    lower = sigma_min(min(m, n), 1e3)
    scale = normalize(v.detach() if m <= n else v.detach().mH.resolve_conj())[1].flatten()
    bound = 2 * cotangent.flatten(1).norm(dim=1) / (lower * scale)
    assert (gradient.flatten(1).norm(dim=1) <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_sylvester_solvers_agree(dtype: torch.dtype) -> None:
    lower = 1e-2
    p = svd_polar(conditioned(24, 24, 1.0, dtype))
    h = (p * torch.logspace(0, -2, 24, dtype=torch.float64)) @ p.mH
    h = (h + h.mH) / 2
    k = torch.randn(h.shape, dtype=dtype)
    k = k - k.mH
    exact, inverse = sylvester.solve_by_eigh(h, k, lower)
    assert (h @ exact + exact @ h - k).abs().max() <= 1e-10
    assert (inverse @ h - torch.eye(24)).abs().max() <= 1e-10
    for tolerance in (1e-2, 1e-6):
        iterative = sylvester.solve_by_products(h, k, lower, tolerance)
        assert (iterative - exact).norm() <= tolerance * exact.norm()
    assert (iterative + iterative.mH).abs().max() <= 1e-12 * iterative.abs().max()


@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64, torch.complex128))
@pytest.mark.parametrize(
    "values",
    ((1.0,) * 6, (1.0, 0.3, 0.1, 0.03, 0.01, 0.001), (1.0, 0.5, 1e-4, 1e-6, 0.0, 0.0), (0.0,) * 6),
)
def test_both_sylvester_solvers_at_the_condition_of_training(values: tuple[float, ...], dtype: torch.dtype) -> None:
    """Inside the interval they agree; outside both are bounded."""
    p = svd_polar(conditioned(6, 6, 1.0, dtype))
    h = (p * torch.tensor(values)) @ p.mH
    h, lower = (h + h.mH) / 2, sigma_min(6, 1e3)
    k = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(2), dtype=dtype)
    k = k - k.mH
    size = k.flatten(1).norm(dim=1) / lower
    exact, _ = sylvester.solve_by_eigh(h, k, lower)
    products = sylvester.solve_by_products(h, k, lower, 1e-2)
    assert (exact.flatten(1).norm(dim=1) <= 0.51 * size).all()
    assert (products.flatten(1).norm(dim=1) <= 2 * size).all()
    if values[-1] >= lower:
        assert (products - exact).norm() <= 1e-2 * exact.norm()


def test_iterative_sylvester_is_bounded_where_the_matrix_is_singular() -> None:
    """Eigenvalues below the interval, zero among them, give a finite solution, not one of size 1/0."""
    lower = 1e-2
    h = torch.diag(torch.tensor([0.0, 1e-9, 1e-3, 0.5, 1.0], dtype=torch.float64))
    k = torch.randn(5, 5, dtype=torch.float64)
    s = sylvester.solve_by_products(h, k - k.mH, lower, tolerance=1e-3)
    assert s.norm() <= 2 * (k - k.mH).norm() / lower


@pytest.mark.parametrize("shape", ((6, 6), (6, 9)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_pullback_by_products_equals_the_one_by_eigenvectors(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """The path that runs on a GPU, here on the CPU."""
    v = conditioned(*shape, 5.0, dtype)
    lower = sigma_min(6, 8.0)
    x, scale, gram, square = normalize(v)
    w, inverse = iterate(x, gram, square, schedule(lower, 1e-12), wants_inverse=True)
    g = torch.randn_like(v)
    exact = pullback(v, w, scale, None, g, lower, use_products=False)
    products = pullback(v, w, scale, inverse, g, lower, use_products=True)
    assert (products - exact).norm() <= 2e-2 * exact.norm()


@pytest.mark.parametrize("shape", ((12, 12), (12, 20)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_pullback_by_products_damps_the_gradient_beyond_its_condition(
    dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    """It solves for singular values down to 1/32 of the largest. Smaller ones contribute a reduced gradient, which
    vanishes with them and never changes sign: so it remains a descent direction."""
    v = conditioned(*shape, 900.0, dtype)
    lower = sigma_min(12, 1e3)
    x, scale, gram, square = normalize(v)
    w, inverse = iterate(x, gram, square, schedule(lower, 1e-12), wants_inverse=True)
    g = torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    vectors, singular, _ = torch.linalg.svd(x)
    exact, products = (  # in the basis of singular vectors, where dV W* is S plus a term that both have in common
        vectors.mH @ pullback(v, w, scale, inverse, g, lower, use_products) @ w.mH @ vectors
        for use_products in (False, True)
    )
    mean = (singular[:, :, None] + singular[:, None, :]) / 2
    solved = mean >= sigma_min(12, GRADIENT_CONDITION)
    beyond = ~solved & ~torch.eye(12, dtype=torch.bool)
    assert solved.any() and beyond.any()
    assert (products - exact)[solved].norm() <= GRADIENT_TOLERANCE * exact[solved].norm()
    share = products[beyond] / exact[beyond]
    assert (share - share.real).abs().max() < 1e-6
    assert (share.real < 1 + 1e-6).all() and (share.real > 0.05).all()
    assert (share.real[mean[beyond] > 0.5 * sigma_min(12, GRADIENT_CONDITION)] > 0.75).all()
