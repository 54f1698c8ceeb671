"""`polar` against the SVD and the paper's iteration, at every scale and condition number."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matrix_cases import conditioned, svd_polar

from literal_lot import literal_transfers
from lotnet.linalg.fourier import transfer
from lotnet.linalg.polar import (
    accurate_polar,
    deviation,
    largest_singular_value,
    normalize,
    polar,
    power_of_two,
)
from lotnet.parametrizations import LOT, Geometry

SHAPES = ((1, 1), (5, 5), (3, 7), (7, 3), (16, 16), (1, 4), (4, 1))
DTYPES = (torch.float64, torch.complex128)
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


@pytest.mark.parametrize("condition", (1.0, 10.0, 1e2, 1e3, 1e4))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_svd_polar_factor(shape: tuple[int, int], dtype: torch.dtype, condition: float) -> None:
    v = conditioned(*shape, condition, dtype)
    assert (accurate_polar(v) - svd_polar(v)).abs().max() <= 1e-10


@settings(deadline=None, max_examples=40)
@given(
    m=st.integers(1, 8),
    n=st.integers(1, 8),
    exponent=st.floats(0, 4),
    tolerance=st.sampled_from((1e-3, 1e-5, 1e-10)),
    seed=st.integers(0, 99),
)
def test_reaches_the_tolerance_it_was_asked_for(m: int, n: int, exponent: float, tolerance: float, seed: int) -> None:
    v = conditioned(m, n, 10**exponent, torch.complex128, seed)
    values = torch.linalg.svdvals(polar(v, tolerance=tolerance, condition=10**exponent))
    assert values.min() >= 1 - tolerance - 1e-12
    assert values.max() <= 1 + 1e-12


def test_schedules_for_wide_intervals_stay_accurate_on_benign_matrices() -> None:
    """Schedules for wide intervals move no benign singular value close to zero, where rounding would dominate it."""
    v = conditioned(8, 8, 20.0, torch.complex128, batch=50)
    assert (polar(v, tolerance=1e-15, condition=1e12) - svd_polar(v)).abs().max() <= 1e-13


@pytest.mark.parametrize("condition", (1.0, 1e3, 1e6, 1e10))
def test_accurate_polar_is_orthonormal_to_working_precision(condition: float) -> None:
    for shape in ((6, 6), (4, 9), (9, 4)):
        v = conditioned(*shape, condition, torch.complex128)
        assert deviation(accurate_polar(v)) <= 1e-14
        assert deviation(accurate_polar(v.to(torch.complex64))) <= (1e-5 if condition < 1e7 else 1.0)
        assert torch.linalg.svdvals(accurate_polar(v)).max() <= 1 + 1e-14


@pytest.mark.parametrize("k", (1, 2, 3, 5))
def test_lot_equals_the_papers_iteration_where_it_has_converged(k: int) -> None:
    torch.manual_seed(k)
    weight = 0.1 * torch.randn(4, 4, k, k, dtype=torch.float64) / k
    weight[:, :, (k - 1) // 2, (k - 1) // 2] += torch.eye(4)
    geometry = Geometry(4, 4, k, 8, 7, "zeros")
    grid = geometry.grid
    literal = literal_transfers(weight, grid.rows, grid.columns)
    assert (torch.linalg.svdvals(literal) - 1).abs().max() < 1e-12  # it has converged
    ours = accurate_polar(transfer(weight, grid)).view(grid.half, grid.columns, 4, 4)
    assert (ours - literal[: grid.half]).abs().max() <= 1e-10


@pytest.mark.parametrize("smallest", (0.9, 1e-3, 0.0))
@pytest.mark.parametrize("largest", (0.5, 1.0, 1.3))
@pytest.mark.parametrize("shape", ((40, 40), (30, 50), (50, 30)))
def test_the_bound_is_above_the_largest_singular_value_and_next_to_it(
    shape: tuple[int, int], largest: float, smallest: float
) -> None:
    torch.manual_seed(0)
    u, s, vh = torch.linalg.svd(torch.randn(3, *shape, dtype=torch.float64), full_matrices=False)
    s = s / s.amax() * largest
    s[:, -1] *= smallest
    s[0, :] *= smallest  # a matrix of small singular values only, or of zeros
    s[1, : len(s[1]) // 2] = largest  # flat, where powers overshoot most
    bound = largest_singular_value((u * s[:, None]) @ vh)
    assert largest * (1 - 1e-12) <= bound <= largest * min(shape) ** (1 / 2**17) * (1 + 1e-12)


@pytest.mark.parametrize("size", (1e-12, 1e-9, 1e-6, 1e-5))
def test_the_bound_for_nearly_orthonormal_matrices(size: float) -> None:
    torch.manual_seed(0)
    w = svd_polar(torch.randn(3, 20, 30, dtype=torch.float64)) + size * torch.randn(3, 20, 30, dtype=torch.float64)
    largest = torch.linalg.svdvals(w).max().item()
    assert largest <= largest_singular_value(w) <= largest + 100 * size


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("frozen", (False, True))
@pytest.mark.parametrize("exponent", (-100, -20, -1, 1, 7, 20, 100))
def test_powers_of_two_do_not_change_a_bit(exponent: int, frozen: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight = torch.randn(3, 4, 3, 3, dtype=dtype)
    geometry = Geometry(3, 4, 3, 6, 5)
    first, second = (LOT().operator(w, geometry, frozen) for w in (weight, weight * 2.0**exponent))
    assert torch.equal(first.transfers, second.transfers)


@pytest.mark.parametrize("shape", ((4, 4), (3, 5), (5, 3)))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_scaling_changes_only_the_rounding(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    for seed in range(10):
        torch.manual_seed(seed)
        weight = torch.randn(*shape, 3, 3, dtype=dtype)
        geometry = Geometry(*shape, 3, 6, 5)
        reference = LOT().operator(weight, geometry, frozen=True).transfers
        values = torch.linalg.svdvals(transfer(weight.double(), geometry.grid))
        condition = (values.amax() / values.amin()).item()
        for a in (1e-6, 3e-4, 0.1, 3.0, 7e3, 1e6):
            scaled = LOT().operator(a * weight, geometry, frozen=True).transfers
            error = torch.linalg.matrix_norm(scaled - reference, ord=2).max()
            assert error <= 10 * UNIT[dtype] * condition


@pytest.mark.parametrize("frozen", (False, True))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("noise", (0.0, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0))
def test_scaling_changes_only_the_rounding_near_the_identity(noise: float, dtype: torch.dtype, frozen: bool) -> None:
    """The error bound grows with the condition number, so it is strictest here."""
    for channels, geometry in ((c, Geometry(c, c, 3, 4, 4, p)) for c in (2, 8, 16) for p in ("zeros", "circular")):
        torch.manual_seed(channels)
        weight = torch.randn(channels, channels, 3, 3, dtype=dtype) * noise / (3 * channels**0.5)
        weight[:, :, 1, 1] += torch.eye(channels, dtype=dtype)
        reference = LOT().operator(weight, geometry, frozen).transfers
        values = torch.linalg.svdvals(transfer(weight.double(), geometry.grid))
        condition = (values.amax() / values.amin()).item()
        for a in (1e-6, 3e-4, 0.7, 1e3, 1e6):
            error = torch.linalg.matrix_norm(LOT().operator(a * weight, geometry, frozen).transfers - reference, ord=2)
            assert error.max() <= 10 * UNIT[dtype] * condition


@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64))
@pytest.mark.parametrize("shape", ((1, 1), (8, 8), (32, 32), (16, 48), (48, 16)))
@pytest.mark.parametrize("condition", (1.0, 1e2, 1e4, 1e6))
def test_float32_training_stays_below_one(shape: tuple[int, int], dtype: torch.dtype, condition: float) -> None:
    for scale in (1e-6, 1e-3, 1.0, 1e3, 1e6):
        v = (scale * conditioned(*shape, condition, dtype)).requires_grad_()
        w = polar(v)
        w.abs().sum().backward()
        assert v.grad is not None and torch.isfinite(torch.view_as_real(v.grad) if w.is_complex() else v.grad).all()
        wide = w.detach().to(torch.complex128)
        assert torch.linalg.svdvals(wide).max() <= 1 + 1e-4
        assert condition > 1e3 or torch.linalg.svdvals(wide).min() >= 1 - 1e-4


@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64, torch.float64, torch.complex128))
@pytest.mark.parametrize("shape", ((4, 4), (3, 5), (5, 3)))
def test_singular_matrices_have_singular_results(shape: tuple[int, int], dtype: torch.dtype) -> None:
    m, n = shape
    zero = torch.zeros(2, m, n, dtype=dtype)
    assert torch.equal(polar(zero), zero)
    u, v = conditioned(m, 1, 1.0, dtype), conditioned(1, n, 1.0, dtype)
    rank_one = polar(1e3 * u @ v)  # a polar factor where it is defined, and no more than one elsewhere
    assert (u.mH @ rank_one @ v.mH).abs().flatten().sub(1).abs().max() <= 1e-4
    assert torch.linalg.svdvals(rank_one).max() <= 1 + 1e-4


def test_a_batch_equals_its_matrices_one_by_one() -> None:
    v = conditioned(4, 6, 50.0, torch.complex128, batch=6)
    together = polar(v.view(2, 3, 4, 6))
    assert torch.allclose(together.view(6, 4, 6), torch.stack([polar(x) for x in v]), atol=1e-13)
    assert polar(v[:0]).shape == (0, 4, 6)


@pytest.mark.parametrize("shape", ((5, 5), (3, 7)))
def test_normalize_bounds_the_largest_singular_value(shape: tuple[int, int]) -> None:
    for scale in (1e-30, 1.0, 1e30):
        v = scale * conditioned(*shape, 10.0, torch.complex128)
        x, factor, gram, square = normalize(v)
        largest = torch.linalg.matrix_norm(x, ord=2)
        assert (largest <= 1 + 1e-14).all() and (largest >= shape[0] ** (-1 / 8) - 1e-14).all()
        assert torch.allclose(x * factor, v, rtol=1e-14, atol=0)
        assert torch.allclose(gram, x @ x.mH, atol=1e-14)
        assert torch.allclose(square, gram @ gram, atol=1e-14)


@given(st.floats(1e-30, 1e30), st.booleans())
def test_power_of_two_is_just_below(value: float, imaginary: bool) -> None:
    v = torch.zeros(2, 3, dtype=torch.complex128)
    v[1, 2] = complex(0, -value) if imaginary else -value
    power = power_of_two(v).item()
    assert math.frexp(power)[0] == 0.5 and power <= value < 2 * power
