"""The two ways to compute polar factors: decompositions, as on a CPU, and products, as on a GPU."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matrix_cases import conditioned, svd_polar

from lotnet.kernels import dispatch
from lotnet.linalg import polar_svd
from lotnet.linalg.polar import accurate_polar, polar, sigma_min

DTYPES = (torch.float32, torch.complex64, torch.float64, torch.complex128)


@pytest.fixture(params=("decompositions", "products"))
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(dispatch, "products_are_cheap", lambda x: request.param == "products")
    return request.param


def rounding(dtype: torch.dtype) -> float:
    return 50 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ((1, 1), (24, 24), (12, 40), (40, 12)))
@pytest.mark.parametrize("condition", (1.0, 8.0, 30.0, 100.0, 1e4, 1e8, 1e12))
def test_singular_values_are_at_most_one_at_any_condition_and_scale(
    method: str, shape: tuple[int, int], dtype: torch.dtype, condition: float
) -> None:
    smallest = torch.finfo(dtype).smallest_normal
    for scale in (1.0, smallest / 16, 2.0**-60, 2.0**60):  # subnormal, too
        v = (scale * conditioned(*shape, condition, dtype)).requires_grad_()
        w = polar(v)
        wide = torch.linalg.svdvals(w.detach().to(torch.complex128))
        assert wide.max() <= 1 + rounding(dtype)
        assert condition > 1e3 or scale < smallest or wide.min() >= 1 - 1e-5 - rounding(dtype)
        if scale >= smallest:
            w.abs().sum().backward()
            assert v.grad is not None and torch.isfinite(v.grad).all()


@settings(max_examples=150, deadline=None)
@given(
    m=st.integers(1, 24),
    n=st.integers(1, 40),
    seed=st.integers(0, 9),
    dtype=st.sampled_from(DTYPES),
    log_condition=st.floats(0, 16),
    small=st.integers(0, 24),
    rank=st.integers(0, 24),
    log_scale=st.floats(-30, 30),
    limit=st.sampled_from((1024.0, 1e12, 1e30)),
)
def test_singular_values_are_at_most_one_for_any_spectrum(
    m: int, n: int, seed: int, dtype: torch.dtype, log_condition: float, small: int, rank: int, log_scale: float,
    limit: float,
) -> None:  # fmt: skip
    """Whatever `_GRAM_LIMIT` predicts: what it lets through is checked."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    p, _, q = torch.linalg.svd(conditioned(m, n, 2.0, wide, seed, batch=2), full_matrices=False)
    s = torch.ones(min(m, n), dtype=torch.float64)
    s[max(0, len(s) - small) :] = 10.0**-log_condition
    s[rank + 1 :] = 0.0
    v = ((p * s) @ q * 10.0**log_scale).to(dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(polar_svd, "_GRAM_LIMIT", limit)
        found = polar(v), accurate_polar(v)
    assert all(torch.linalg.svdvals(w.to(torch.complex128)).max() <= 1 + rounding(dtype) for w in found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("factor", (0.1, 0.99, -1.0, math.nan))
def test_a_decomposition_that_is_not_accurate_enough_is_not_used(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, factor: float
) -> None:
    """If one of three decompositions goes wrong, that matrix takes the other way, and the others keep their bits."""
    v = conditioned(12, 20, 4.0, dtype)
    expected, eigh = polar(v), torch.linalg.eigh

    def inaccurate(gram: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, u = eigh(gram)
        values[1] *= factor
        return values, u

    monkeypatch.setattr(torch.linalg, "eigh", inaccurate)
    w = polar(v)
    assert torch.equal(w[::2], expected[::2]) and not torch.equal(w[1], expected[1])
    assert (w - svd_polar(v)).abs().max() <= rounding(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ((24, 24), (12, 40)))
def test_rank_deficient_and_zero_matrices(method: str, shape: tuple[int, int], dtype: torch.dtype) -> None:
    m, n = shape
    half = conditioned(m, m // 2, 3.0, dtype) @ conditioned(m // 2, n, 3.0, dtype)
    v = torch.cat((half, torch.zeros_like(half))).requires_grad_()
    w = polar(v)
    assert torch.linalg.svdvals(w.detach()).max() <= 1 + rounding(dtype)
    assert not w[len(half) :].any()
    w.abs().square().sum().backward()
    assert v.grad is not None and torch.isfinite(v.grad).all()


@pytest.mark.parametrize("condition", (2.0, 20.0, 500.0))
@pytest.mark.parametrize("dtype", (torch.float64, torch.complex128))
@pytest.mark.parametrize("shape", ((6, 6), (5, 9), (9, 5)))
def test_value_and_gradient_of_both_methods(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], dtype: torch.dtype, condition: float
) -> None:
    v = conditioned(*shape, condition, dtype).requires_grad_()
    g = torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    w = polar(v)
    (exact,) = torch.autograd.grad(w, v, g)
    assert (w - svd_polar(v)).abs().max() <= 1e-12 * condition
    assert (accurate_polar(v) - svd_polar(v)).abs().max() <= 1e-14 * condition
    monkeypatch.setattr(dispatch, "products_are_cheap", lambda x: True)
    products = polar(v, tolerance=1e-12)
    assert (products - w).abs().max() <= 1e-10
    assert (accurate_polar(v) - svd_polar(v)).abs().max() <= 1e-12 * condition
    (close,) = torch.autograd.grad(products, v, g)
    assert condition > 20 or (close - exact).norm() <= 2e-2 * exact.norm()


def test_each_matrix_is_judged_by_itself() -> None:
    """A batch with matrices of both kinds has the bits of its matrices one by one."""
    v = torch.cat([conditioned(8, 12, c, torch.complex64, batch=2) for c in (2.0, 1e3, 5.0, 1e7)])
    assert torch.equal(polar(v), torch.cat([polar(x[None]) for x in v]))


def test_a_matrix_that_is_not_finite_gives_nan_and_leaves_the_others_alone() -> None:
    v = conditioned(5, 7, 10.0, torch.float32)
    expected = polar(v)
    v[1, 2, 3] = torch.nan
    w = polar(v)
    assert w[1].isnan().any() and torch.equal(w[::2], expected[::2])


def test_the_result_is_continuous_where_singular_values_vanish() -> None:
    """Below `lower`, singular values shrink in proportion."""
    lower = sigma_min(4, 1e3)
    for smallest in (2.0, 1.0, 0.5, 0.1, 0.0):
        s = torch.tensor([1.0, 1.0, 1.0, smallest * lower * 3 ** (1 / 8)], dtype=torch.float64)
        values = torch.linalg.svdvals(polar_svd.polar(torch.diag(s)[None], lower))
        assert values.min().item() == pytest.approx(min(1.0, smallest), abs=1e-6)
