"""Rounding-error formulas: programs in float32 against exact rationals, on adversarial inputs."""

import math
from fractions import Fraction

import flint
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from lotnet.linalg.bounds import beta, beta_conv, norm_bound
from lotnet.linalg.fourier import Grid, analyze, column_basis, row_basis, synthesize
from lotnet.linalg.roundoff import (
    Upper,
    complex_product_error,
    dft_error,
    down,
    gamma,
    householder_bound,
    householder_error,
    product_error,
    rounding_error,
    unit_roundoff,
    up,
)

F32 = torch.float32
nonnegative = st.floats(0, 1e300, allow_nan=False) | st.integers(0, 2**80)


# ---- upper bounds of numbers


@given(nonnegative, nonnegative, st.floats(1e-300, 1e300))
def test_upper_never_falls_below_the_exact_result(a: float, b: float, d: float) -> None:
    x, y = Fraction(a), Fraction(b)
    for bound, exact in (
        (Upper(a), x),
        (Upper(a) + b, x + y),
        (a + Upper(b), x + y),
        (Upper(a) * b, x * y),
        (a * Upper(b), x * y),
        (Upper(a) / d, x / Fraction(d)),
    ):
        assert isinstance(bound, Upper)
        assert math.isinf(bound) or Fraction(bound) >= exact
        assert exact > 2**1023 or Fraction(bound) <= exact * (1 + Fraction(1, 2**50)) + Fraction(1, 2**1073)
    assert Fraction(Upper(a).sqrt()) ** 2 >= x


def test_upper_at_its_limits() -> None:
    assert Upper(math.nan) == Upper(0) * math.inf == Upper(Fraction(10) ** 400) == math.inf
    assert sum([Upper(1), Upper(2)]) >= 3 and isinstance(sum([Upper(1)]), Upper)
    for plain in (Upper(3) - 1, 3 - Upper(1), 4 / Upper(2)):  # these would need a lower bound
        assert type(plain) is float and plain == 2
    for divisor in (Upper(1), 0, -1, math.nan):
        with pytest.raises(TypeError, match="exact positive"):
            Upper(1) / divisor
    with pytest.raises(ValueError, match="nonnegative"):
        Upper(-1e-300)


def test_steps_and_roundoff() -> None:
    assert down(1.0) < 1 < up(1.0) and up(0.0) == 5e-324
    assert unit_roundoff(torch.float32) == unit_roundoff(torch.complex64) == 2.0**-24
    assert unit_roundoff(torch.float64) == 2.0**-53


@given(st.integers(1, 2**25), st.sampled_from([2.0**-24, 2.0**-53]))
def test_gamma(k: int, u: float) -> None:
    ku = k * Fraction(u)
    if ku >= 1:
        assert gamma(k, u) == math.inf
    else:
        assert ku / (1 - ku) <= Fraction(gamma(k, u)) <= ku / (1 - ku) * (1 + Fraction(1, 2**50))


# ---- programs in float32

KINDS = ("gaussian", "cancelling", "tiny", "huge", "spread")


def _input(kind: str, shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    """Float32 numbers: ordinary, summing to almost nothing, subnormal, near 1e18, or of all magnitudes."""
    x = torch.randn(shape, generator=g)
    if kind == "cancelling":
        flat = x.flatten()
        half = len(flat) // 2
        flat[half : 2 * half] = -flat[:half] * (1 + 2.0**-22)
        return flat.reshape(shape)
    if kind == "spread":
        return x * 10.0 ** torch.randint(-25, 10, shape, generator=g)
    return x * {"gaussian": 1.0, "tiny": 1e-41, "huge": 1e18}[kind]


def _exact(x: Tensor) -> np.ndarray:
    return np.vectorize(Fraction, otypes=[object])(x.double().numpy())


def _error(result: Tensor, exact: np.ndarray) -> Fraction:
    """The squared l2 distance of a float32 result from the exact one."""
    return sum(((a - b) ** 2 for a, b in zip(_exact(result).flat, np.asarray(exact).flat, strict=True)), Fraction(0))


def _norm(x: Tensor) -> float:
    return norm_bound(x).item()


def _product(kind: str, g: torch.Generator) -> tuple[Tensor, np.ndarray, Upper]:
    w, x = _input(kind, (3, 8), g), _input(kind, (8,), g)
    return w @ x, _exact(w) @ _exact(x), product_error(beta(w).item(), 8, _norm(x), F32)


def _shuffled_product(kind: str, g: torch.Generator) -> tuple[Tensor, np.ndarray, Upper]:
    """One multiply and one add at a time, in random order."""
    w, x = _input(kind, (3, 8), g), _input(kind, (8,), g)
    y = torch.zeros(3)
    for k in torch.randperm(8, generator=g).tolist():
        y = y + w[:, k] * x[k]
    return y, _exact(w) @ _exact(x), product_error(beta(w).item(), 8, _norm(x), F32)


def _complex_product(kind: str, g: torch.Generator) -> tuple[Tensor, np.ndarray, Upper]:
    re, im, x_re, x_im = (_input(kind, shape, g) for shape in ((3, 5), (3, 5), (5,), (5,)))
    w, x = torch.complex(re, im), torch.complex(x_re, x_im)
    a, b, c, d = _exact(re), _exact(im), _exact(x_re), _exact(x_im)
    bound = complex_product_error(beta(w).item(), 5, _norm(x), F32)
    return torch.view_as_real(w @ x).mT.flatten(), np.concatenate([a @ c - b @ d, a @ d + b @ c]), bound


def _block_product(kind: str, g: torch.Generator) -> tuple[Tensor, np.ndarray, Upper]:
    re, im, x = _input(kind, (3, 5), g), _input(kind, (3, 5), g), _input(kind, (10,), g)
    block = torch.cat([torch.cat([re, -im], 1), torch.cat([im, re], 1)], 0)
    bound = complex_product_error(beta(torch.complex(re, im)).item(), 5, _norm(x), F32)
    return block @ x, _exact(block) @ _exact(x), bound


def _convolution(kind: str, g: torch.Generator) -> tuple[Tensor, np.ndarray, Upper]:
    kernel, x = _input(kind, (2, 2, 3, 3), g), _input(kind, (1, 2, 4, 4), g)
    patches = _exact(F.unfold(x, 3, padding=1)[0])  # copies, so exact
    exact = _exact(kernel.flatten(1)) @ patches
    return F.conv2d(x, kernel, padding=1), exact, product_error(beta_conv(kernel).item(), 18, _norm(x), F32)


def _logits(kind: str, g: torch.Generator) -> tuple[Tensor, np.ndarray, Upper]:
    w, x, b = _input(kind, (1, 8), g), _input(kind, (8,), g), _input(kind, (1,), g)
    bound = rounding_error(9, Upper(_norm(w)) * _norm(x) + _norm(b), F32)
    return F.linear(x, w, b), _exact(w) @ _exact(x) + _exact(b), bound


def _bias(kind: str, g: torch.Generator) -> tuple[Tensor, np.ndarray, Upper]:
    x, b = _input(kind, (16,), g), _input(kind, (16,), g)
    return x + b, _exact(x) + _exact(b), rounding_error(1, Upper(_norm(x)) + _norm(b), F32)


def _normalise(kind: str, g: torch.Generator) -> tuple[Tensor, np.ndarray, Upper]:
    x, mean, std = (
        _input(kind, (3, 5), g),
        torch.rand(3, 1, generator=g),
        torch.rand(3, 1, generator=g) / 4 + 0.1,
    )
    bound = rounding_error(2, (Upper(_norm(x)) + _norm(mean.expand(3, 5))) / std.min().item(), F32)
    return (x - mean) / std, (_exact(x) - _exact(mean)) / _exact(std), bound


def _residual(kind: str, g: torch.Generator) -> tuple[Tensor, np.ndarray, Upper]:
    x, y, a, b = _input(kind, (16,), g), _input(kind, (16,), g), torch.tensor(0.3), torch.tensor(-0.7)
    bound = rounding_error(2, Upper(_norm(x)) * a.item() + Upper(_norm(y)) * -b.item(), F32)
    return a * x + b * y, _exact(a) * _exact(x) + _exact(b) * _exact(y), bound


def _average(kind: str, g: torch.Generator) -> tuple[Tensor, np.ndarray, Upper]:
    x = _input(kind, (1, 2, 6, 6), g)
    exact = _exact(x).reshape(2, 2, 3, 2, 3).sum((2, 4)) / 9
    return F.avg_pool2d(x, 3), exact, rounding_error(10, Upper(_norm(x)) / 3, F32)


def _householder(kind: str, g: torch.Generator) -> tuple[Tensor, np.ndarray, Upper]:
    z, angle = _input(kind, (2, 9), g), 6.3 * torch.rand((), generator=g)
    v = torch.stack([angle.cos(), angle.sin()])[:, None]
    y = z - 2 * v * (v * z).sum(0).relu()
    dot = np.maximum((_exact(v) * _exact(z)).sum(0), Fraction(0))
    return y, _exact(z) - 2 * _exact(v) * dot, householder_error(_norm(v), 2, _norm(z), F32)


PROGRAMS = {
    "product": _product,
    "product in any order": _shuffled_product,
    "complex product": _complex_product,
    "complex product as real blocks": _block_product,
    "convolution": _convolution,
    "logit": _logits,
    "bias": _bias,
    "normalise": _normalise,
    "residual": _residual,
    "average pooling": _average,
    "householder": _householder,
}


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32))
def test_programs_stay_within_their_bounds(name: str, kind: str, seed: int) -> None:
    result, exact, bound = PROGRAMS[name](kind, torch.Generator().manual_seed(seed))
    assert result.isfinite().all()
    assert _error(result, exact) <= Fraction(bound) ** 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_bounds_are_not_vacuous(name: str) -> None:
    """Some ordinary input comes within a factor of 100."""
    closest = 0.0
    for seed in range(20):
        result, exact, bound = PROGRAMS[name]("gaussian", torch.Generator().manual_seed(seed))
        closest = max(closest, math.sqrt(_error(result, exact)) / bound)
    assert 0.01 < closest <= 1


# ---- the DFT as a matrix product


def _dft(n: int, scale: float) -> Tensor:
    """Computed in float64 from reduced angles, rounded to float32 parts."""
    index = torch.arange(n)
    angle = -2 * math.pi / n * (torch.outer(index, index) % n).double()
    return torch.polar(torch.full((n, n), scale, dtype=torch.float64), angle).to(torch.complex64)


@settings(max_examples=40, deadline=None)
@given(
    h=st.integers(1, 24),
    w=st.integers(1, 24),
    power=st.sampled_from([0.0, 0.5, 1.0]),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
)
def test_dft_error(h: int, w: int, power: float, kind: str, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    x = torch.complex(_input(kind, (h, w), g), _input(kind, (h, w), g))
    scales = h**-power, w**-power
    result = _dft(h, scales[0]) @ x @ _dft(w, scales[1])
    exact = torch.fft.fft2(x.to(torch.complex128)) * scales[0] * scales[1]
    norm = _norm(x) * (h * w) ** (0.5 - power) * (1 + 1e-15)
    assert torch.linalg.vector_norm(result - exact).item() <= dft_error((w, h), norm, F32)


@settings(max_examples=40, deadline=None)
@given(
    h=st.integers(1, 12),
    w=st.integers(1, 12),
    padding=st.integers(0, 2),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
)
def test_dft_error_of_half_a_spectrum(h: int, w: int, padding: int, kind: str, seed: int) -> None:
    """The layers' transforms, forward and back. The way back starts from any spectrum, of a real signal or not."""
    g, grid = torch.Generator().manual_seed(seed), Grid(h, w, padding)
    x = _input(kind, (1, 1, h, w), g)
    spectrum = _input(kind, (grid.frequencies, 2, 1), g)
    for transform, argument in ((analyze, x), (synthesize, spectrum)):
        error = transform(argument, grid).double() - transform(argument.double(), grid)
        assert torch.linalg.vector_norm(error).item() <= dft_error((grid.rows, grid.columns), _norm(argument), F32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12, 34, 63, 64])
def test_stored_transforms_are_as_exact_as_dft_error_assumes(n: int, dtype: torch.dtype) -> None:
    grid, half = Grid(n, n), n // 2 + 1
    with flint.ctx.workdps(40):
        turn = [flint.fmpq(2 * (j % n), n) for j in range(n * n)]
        wave = [(flint.arb.cos_pi_fmpq(t), -flint.arb.sin_pi_fmpq(t)) for t in turn[:n]]
        rows = row_basis(grid, dtype, torch.device("cpu")).view(half, 2, n).double().tolist()
        columns = column_basis(grid, dtype, torch.device("cpu")).view(n, 2, 2, n).double().tolist()
        for f in range(n):
            scale = 1 / flint.arb(n).sqrt()
            weight = scale if 2 * f % n == 0 else scale * flint.arb(2).sqrt()
            for p in range(n):
                cos, sin = wave[f * p % n]
                (real_real, real_imag), (imag_real, imag_imag) = ([part[p] for part in c] for c in columns[f])
                pairs = [(real_real, cos * scale, scale), (real_imag, -sin * scale, scale)]
                pairs += [(imag_real, sin * scale, scale), (imag_imag, cos * scale, scale)]
                if f < half:
                    pairs += [(rows[f][0][p], cos * weight, weight), (rows[f][1][p], sin * weight, weight)]
                for stored, true, unit in pairs:
                    assert abs(stored - true) <= 6 * unit_roundoff(dtype) * unit


def test_dft_error_equals_its_formula() -> None:
    one, two = dft_error((32,), 1.0, torch.float64), dft_error((32, 32), 1.0, torch.float64)
    assert one == pytest.approx(2 * math.sqrt(32) * 73 * 2**-53, rel=1e-6)
    assert two == pytest.approx((1 + math.sqrt(2)) * one, rel=1e-6)
    assert dft_error((), 1.0, torch.float64) == 0


@given(st.floats(0.1, 6.2), st.floats(-1e-3, 1e-3))
def test_householder_bound_is_the_lipschitz_constant(angle: float, stretch: float) -> None:
    v = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64) * (1 + stretch)
    bound = householder_bound(norm_bound(v).item())
    reflected = v - 2 * v * (v @ v)  # z = v is where the reflection stretches most
    gain = (torch.linalg.vector_norm(reflected) / torch.linalg.vector_norm(v)).item()
    assert max(1.0, gain * (1 - 1e-14)) <= bound <= max(1.0, gain) * (1 + 1e-12)
