"""`polar` against the SVD, the paper's iteration and autograd, at every scale and condition number."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from literal_lot import literal_transfers, newton_polar
from lotnet.errors import InputError
from lotnet.linalg import sylvester
from lotnet.linalg.fourier import transfer
from lotnet.linalg.polar import (
    GRADIENT_CONDITION,
    GRADIENT_TOLERANCE,
    accurate_polar,
    deviation,
    iterate,
    largest_singular_value,
    lower_end,
    normalize,
    polar,
    power_of_two,
    pullback,
)
from lotnet.linalg.polynomials import CUBIC, best_quintic, evaluate, schedule, widest
from lotnet.parametrizations import LOT, Geometry

SHAPES = ((1, 1), (5, 5), (3, 7), (7, 3), (16, 16), (1, 4), (4, 1))
DTYPES = (torch.float64, torch.complex128)
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


def conditioned(m: int, n: int, condition: float, dtype: torch.dtype, seed: int = 0, batch: int = 3) -> Tensor:
    """Random singular vectors, singular values from 1 down to 1/condition."""
    g = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    p, _, q = torch.linalg.svd(torch.randn(batch, m, n, generator=g, dtype=wide), full_matrices=False)
    r = min(m, n)
    s = torch.logspace(0, -math.log10(condition), r, dtype=torch.float64) if r > 1 else torch.ones(1).double()
    return ((p * s) @ q).to(dtype)


def svd_polar(v: Tensor) -> Tensor:
    p, _, q = torch.linalg.svd(v, full_matrices=False)
    return p @ q


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


def test_allowing_for_the_worst_does_no_harm_to_the_best() -> None:
    """Schedules for wide intervals send no benign singular value near zero, where it would drown in rounding."""
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
def test_lot_equals_the_paper_where_that_has_converged(k: int) -> None:
    torch.manual_seed(k)
    weight = 0.1 * torch.randn(4, 4, k, k, dtype=torch.float64) / k
    weight[:, :, (k - 1) // 2, (k - 1) // 2] += torch.eye(4)
    geometry = Geometry(4, 4, k, 8, 7, "zeros")
    grid = geometry.grid
    literal = literal_transfers(weight, grid.rows, grid.columns)
    assert (torch.linalg.svdvals(literal) - 1).abs().max() < 1e-12  # it has converged
    ours = accurate_polar(transfer(weight, grid)).view(grid.half, grid.columns, 4, 4)
    assert (ours - literal[: grid.half]).abs().max() <= 1e-10


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
def test_gradient_of_the_training_accuracy(shape: tuple[int, int]) -> None:
    """The gradient's error is of the order of the tolerance, not of what the iteration leaves undone."""
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
    lower = lower_end(min(m, n), 1e3)
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
    exact, inverse = sylvester.by_eigenvectors(h, k, lower)
    assert (h @ exact + exact @ h - k).abs().max() <= 1e-10
    assert (inverse @ h - torch.eye(24)).abs().max() <= 1e-10
    for tolerance in (1e-2, 1e-6):
        iterative = sylvester.by_products(h, k, lower, tolerance)
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
    h, lower = (h + h.mH) / 2, lower_end(6, 1e3)
    k = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(2), dtype=dtype)
    k = k - k.mH
    size = k.flatten(1).norm(dim=1) / lower
    exact, _ = sylvester.by_eigenvectors(h, k, lower)
    products = sylvester.by_products(h, k, lower, 1e-2)
    assert (exact.flatten(1).norm(dim=1) <= 0.51 * size).all()
    assert (products.flatten(1).norm(dim=1) <= 2 * size).all()
    if values[-1] >= lower:
        assert (products - exact).norm() <= 1e-2 * exact.norm()


def test_iterative_sylvester_is_bounded_where_the_matrix_is_singular() -> None:
    """Eigenvalues below the interval, zero among them, give a finite solution, not one of size 1/0."""
    lower = 1e-2
    h = torch.diag(torch.tensor([0.0, 1e-9, 1e-3, 0.5, 1.0], dtype=torch.float64))
    k = torch.randn(5, 5, dtype=torch.float64)
    s = sylvester.by_products(h, k - k.mH, lower, tolerance=1e-3)
    assert s.norm() <= 2 * (k - k.mH).norm() / lower


@pytest.mark.parametrize("shape", ((6, 6), (6, 9)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_pullback_by_products_is_the_one_by_eigenvectors(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """The path that runs on a GPU, here on the CPU."""
    v = conditioned(*shape, 5.0, dtype)
    lower = lower_end(6, 8.0)
    x, scale, gram, square = normalize(v)
    w, inverse = iterate(x, gram, square, schedule(lower, 1e-12), wants_inverse=True)
    g = torch.randn_like(v)
    exact = pullback(v, w, scale, None, g, lower, by_products=False)
    products = pullback(v, w, scale, inverse, g, lower, by_products=True)
    assert (products - exact).norm() <= 2e-2 * exact.norm()


@pytest.mark.parametrize("shape", ((12, 12), (12, 20)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_pullback_by_products_beyond_its_condition_leaves_out_a_part(
    dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    """It solves for singular values down to a 32nd of the largest. Of what the gradient owes to others it takes a share
    that falls with them, never more than all: so it still points downhill."""
    v = conditioned(*shape, 900.0, dtype)
    lower = lower_end(12, 1e3)
    x, scale, gram, square = normalize(v)
    w, inverse = iterate(x, gram, square, schedule(lower, 1e-12), wants_inverse=True)
    g = torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    vectors, singular, _ = torch.linalg.svd(x)
    exact, products = (  # in terms of the singular vectors, where dV W* is S plus what both have in common
        vectors.mH @ pullback(v, w, scale, inverse, g, lower, by_products) @ w.mH @ vectors
        for by_products in (False, True)
    )
    mean = (singular[:, :, None] + singular[:, None, :]) / 2
    solved = mean >= lower_end(12, GRADIENT_CONDITION)
    beyond = ~solved & ~torch.eye(12, dtype=torch.bool)
    assert solved.any() and beyond.any()
    assert (products - exact)[solved].norm() <= GRADIENT_TOLERANCE * exact[solved].norm()
    share = products[beyond] / exact[beyond]
    assert (share - share.real).abs().max() < 1e-6
    assert (share.real < 1 + 1e-6).all() and (share.real > 0.05).all()
    assert (share.real[mean[beyond] > 0.5 * lower_end(12, GRADIENT_CONDITION)] > 0.75).all()


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
    s[0, :] *= smallest  # a whole matrix of them, zero among these
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
    """Where the condition number forgives least."""
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


def test_a_batch_is_its_matrices() -> None:
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


# Schedules


def envelope(steps: tuple[tuple[float, float, float], ...], points: Tensor) -> Tensor:
    """The values after each step, one row each."""
    rows = [points]
    for step in steps:
        rows.append(torch.tensor([evaluate(step, s) for s in rows[-1].tolist()], dtype=torch.float64))
    return torch.stack(rows)


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 12), st.floats(0.5, 15))
def test_a_schedule_stays_in_the_envelope_and_arrives(exponent: float, digits: float) -> None:
    lower, tolerance = 10**-exponent, 10**-digits
    steps = schedule(lower, tolerance)
    assert steps[-1] == CUBIC
    inside = torch.logspace(-exponent, 0, 400, dtype=torch.float64).clamp(lower, 1)
    anywhere = torch.cat((torch.linspace(0, 1, 400, dtype=torch.float64), inside * lower))
    for points in (inside, anywhere):
        values = envelope(steps, points)
        assert values.min() >= 0 and values.max() <= 2
        assert values[-1].max() <= 1 + 1e-15
        # Nothing comes near zero that was not: rounding would take it.
        assert (values[1:] >= values[:-1].clamp_max(0.2) * (1 - 1e-12)).all()
    assert envelope(steps, inside)[-1].min() >= 1 - tolerance - 1e-15


def test_more_accuracy_takes_more_steps() -> None:
    lengths = [len(schedule(lower, 1e-5)) for lower in (1.0, 0.5, 1e-1, 1e-2, 1e-3, 1e-6, 1e-12)]
    assert lengths == sorted(lengths)
    assert len(schedule(0.02, 1e-5)) <= 5  # four quintics and the cubic


@pytest.mark.parametrize("lower", (1e-4, 0.01, 0.3, 0.9))
def test_the_best_quintic_equioscillates(lower: float) -> None:
    polynomial, error = best_quintic(lower, 1.0)
    errors = 1 - envelope((polynomial,), torch.linspace(lower, 1, 20001, dtype=torch.float64))[1]
    assert errors.abs().max().item() == pytest.approx(error, rel=1e-6)
    signs = errors[errors.abs() > 0.999 * error].sign()
    assert (signs.diff() != 0).sum() == 3  # four extremes of alternating sign: no odd quintic is better


def test_bad_schedules_are_refused() -> None:
    for lower, tolerance in ((0.0, 0.1), (1.1, 0.1), (0.5, 0.0), (0.5, 1e-17), (0.5, 1.0), (math.nan, 0.1)):
        with pytest.raises(InputError, match="a schedule needs"):
            schedule(lower, tolerance)


@pytest.mark.parametrize("lower", (1.0, 0.9, 0.3, 1e-2, 1e-15))
def test_the_finest_tolerance_is_reached(lower: float) -> None:
    steps = schedule(lower, 1e-16)  # one that could not be reached would be tried for ever
    assert abs(envelope(steps, torch.tensor([lower, 1.0], dtype=torch.float64))[-1] - 1).max() <= 1e-15


@pytest.mark.parametrize("tolerance", (1e-2, 1e-4, 1e-5, 1e-12))
@pytest.mark.parametrize("length", range(2, 12))
def test_widest_is_the_end_of_its_length(length: int, tolerance: float) -> None:
    lower = widest(length, tolerance)
    if lower == 1.0:  # a tolerance that needs more polynomials than that even for one
        assert len(schedule(1.0, tolerance)) >= length
    else:
        assert len(schedule(lower, tolerance)) == length
        assert len(schedule(lower * (1 - 1e-5), tolerance)) == length + 1
