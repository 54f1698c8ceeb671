"""Norm bounds: never below the norm (fifty digits, exact rationals, SVD), and never far above it."""

import math
from fractions import Fraction
from types import SimpleNamespace

import oracle
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lotnet.linalg.bounds import beta, beta_conv, constant_image_norm, norm_bound, series_bound, spectral_norm_bound

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SCALES = (1.0, 1e-30, 1e30, 1e-44)


def _exact_square(x: Tensor) -> Fraction:
    """The squared l2 norm of the stored numbers."""
    parts = torch.view_as_real(x) if x.is_complex() else x
    return sum((Fraction(v) ** 2 for v in parts.flatten().tolist()), Fraction(0))


def test_spectral_norm_bound_against_fifty_digits() -> None:
    outcome = oracle.check(count=520, seed=1)
    assert not outcome.failures
    assert outcome.refused <= outcome.count // 100
    assert outcome.excess < 1e-7


@pytest.mark.parametrize("pixels", [1, 2, 12, 4096**2])
def test_the_norm_of_an_image_with_constant_channels(pixels: int) -> None:
    values = torch.tensor([0.1, -3.0, 1e-30], dtype=torch.float64)
    bound = Fraction(float(constant_image_norm(values, pixels)))
    assert pixels * _exact_square(values) <= bound**2 <= pixels * _exact_square(values) * Fraction(1 + 1e-12)


@pytest.mark.slow
def test_spectral_norm_bound_against_fifty_digits_in_full() -> None:
    outcome = oracle.check(count=10_000, seed=0)
    assert not outcome.failures
    assert outcome.refused <= outcome.count // 100


def test_the_oracle_gives_known_norms() -> None:
    assert oracle.spectral_norm(torch.tensor([[3, 0], [0, 4j]])).contains(4)
    assert oracle.spectral_norm(torch.ones(2, 3)).overlaps(oracle.flint.arb(6).sqrt())
    assert oracle.spectral_norm(torch.zeros(2, 2)) == 0


@pytest.mark.parametrize("mutant", ["svd", "power iteration"])
def test_the_oracle_detects_estimates_that_are_not_bounds(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def power(w: Tensor) -> Tensor:
        v = torch.ones(w.shape[-1], 1, dtype=torch.complex128)
        for _ in range(100):
            v = torch.nn.functional.normalize(w.to(v).mH @ (w.to(v) @ v), dim=0)
        return torch.linalg.vector_norm(w.to(v) @ v)

    def svd(w: Tensor) -> Tensor:
        return torch.linalg.matrix_norm(w.to(torch.complex128), 2)

    monkeypatch.setattr(oracle, "spectral_norm_bound", {"svd": svd, "power iteration": power}[mutant])
    assert oracle.check(count=130, seed=1).failures


@pytest.mark.parametrize("shape", [(64, 128), (256, 512), (128, 64)])
@pytest.mark.parametrize("kind", ["gaussian", "orthogonal", "few small", "condition 1e16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_spectral_norm_bound_against_svd(shape: tuple[int, int], kind: str, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(sum(shape))
    w = torch.randn(*shape, generator=g, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    if kind != "gaussian":
        u, _, v = torch.linalg.svd(w, full_matrices=False)
        k = min(shape)
        s = {
            "orthogonal": torch.full((k,), 1 - 2**-20),
            "few small": torch.cat([torch.ones(k - 5), torch.rand(5, generator=g)]),
            "condition 1e16": torch.logspace(0, -16, k),
        }[kind]
        w = (u * s) @ v
    w = w.to(dtype)
    norm = torch.linalg.matrix_norm(w.to(torch.complex128), 2)
    bound = spectral_norm_bound(w)
    assert bound.dtype == torch.float64
    assert norm * (1 - 1e-13) <= bound <= norm * (1 + 1e-7)  # 1e-13: SVD's own error


def test_each_matrix_of_a_batch_has_its_own_bound() -> None:
    w = torch.randn(2, 3, 5, 4, dtype=torch.complex64)
    w[0, 1] *= 1e30
    w[1, 0, 2, 2] = math.nan
    w[1, 1, 0, 0] = complex(0, math.inf)
    w[1, 2] = 0
    bound = spectral_norm_bound(w)
    assert bound.shape == (2, 3)
    assert bound[1].tolist() == [math.inf, math.inf, 0]
    assert bound[0].tolist() == [spectral_norm_bound(m).item() for m in w[0]]
    assert spectral_norm_bound(w[:0]).shape == (0, 3)


@pytest.mark.parametrize("factor", [0.0, 0.9, 1.1, math.nan])
@pytest.mark.parametrize("shift", [0.5, 1.0, 2.0, math.nan])
def test_the_bound_holds_whatever_lapack_returns(factor: float, shift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    cholesky, eigvalsh = torch.linalg.cholesky_ex, torch.linalg.eigvalsh
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda a: SimpleNamespace(L=cholesky(a).L * factor))
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda a: eigvalsh(a) * shift)
    w = torch.randn(20, 4, 6, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    assert (spectral_norm_bound(w) >= torch.linalg.matrix_norm(w, 2)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", SCALES)
def test_norm_bound(dtype: torch.dtype, scale: float) -> None:
    x = (torch.randn(6, 3, 5, dtype=torch.complex128 if dtype.is_complex else torch.float64) * scale).to(dtype)
    x[4] = 0
    for row, bound in zip(x, norm_bound(x, (1, 2)).tolist(), strict=True):
        assert _exact_square(row) <= Fraction(bound) ** 2 <= _exact_square(row) * (1 + Fraction(1, 10**12))
    assert Fraction(norm_bound(x).item()) ** 2 >= _exact_square(x)
    assert norm_bound(x, -1).shape == (6, 3)


def test_norm_bound_at_the_ends_of_the_range() -> None:
    smallest = torch.tensor([5e-324, -5e-324], dtype=torch.float64)
    assert 5e-324 < norm_bound(smallest).item() <= 1.5e-323
    largest = torch.full((3,), 1e308, dtype=torch.float64)
    assert 3**0.5 * 1e308 <= norm_bound(largest).item() < math.inf
    assert norm_bound(torch.tensor([1.0, math.inf])).item() == math.inf
    assert norm_bound(torch.tensor([1.0, math.nan])).item() == math.inf
    assert norm_bound(torch.tensor(-2.0)).item() == pytest.approx(2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", SCALES)
def test_beta(dtype: torch.dtype, scale: float) -> None:
    w = (torch.randn(4, 5, 7, dtype=torch.complex128 if dtype.is_complex else torch.float64) * scale).to(dtype)
    modulus = w.to(torch.complex128).abs()
    assert (beta(w) >= torch.linalg.matrix_norm(modulus, 2)).all()
    formula = (modulus.sum(-1).amax(-1) * modulus.sum(-2).amax(-1)).sqrt()
    assert torch.allclose(beta(w) / scale, formula / scale, rtol=1e-12)


@pytest.mark.parametrize("mode", ["constant", "circular"])
@pytest.mark.parametrize("stride", [1, 2])
def test_beta_conv_bounds_the_dense_operator(mode: str, stride: int) -> None:
    kernel = torch.randn(3, 2, 3, 3, dtype=torch.float64)
    impulses = torch.eye(2 * 4 * 4, dtype=torch.float64).reshape(-1, 2, 4, 4)
    dense = F.conv2d(F.pad(impulses, (1, 1, 1, 1), mode=mode), kernel.abs(), stride=stride).flatten(1)
    norm = torch.linalg.matrix_norm(dense, 2)
    assert norm <= beta_conv(kernel) <= 2 * stride * norm
    assert beta_conv(kernel[:, :, :1, :1]) == beta(kernel[:, :, 0, 0])


@pytest.mark.parametrize("terms", [1, 2, 3, 5, 6, 8, 12])
@pytest.mark.parametrize("theta", [1e-20, 0.5, 1.0, 2.0, 3.5, 9.0])
def test_series_bound(theta: float, terms: int) -> None:
    bound = Fraction(series_bound(theta, terms)) ** 2

    def square(t: Fraction) -> Fraction:
        """|S(i t)|^2, exactly."""
        parts = [Fraction(0), Fraction(0)]
        for j in range(terms + 1):
            parts[j % 2] += (-1) ** (j // 2) * t**j / math.factorial(j)
        return parts[0] ** 2 + parts[1] ** 2

    largest = max(square(Fraction(theta) * k / 500) for k in range(501))
    assert largest <= bound <= largest * (1 + Fraction(1, 10**4))  # the grid misses the maximum by this much
    if terms % 4 in (0, 3) and theta <= 1:  # |S| falls from 1: no growth at all
        assert bound <= 1 + Fraction(1, 10**12)


def test_series_bound_bounds_the_matrix_series() -> None:
    a = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    a = (a - a.mT) / 8
    term = total = torch.eye(6, dtype=torch.float64)
    for j in range(1, 6):
        term = a @ term / j
        total = total + term
    norm = torch.linalg.matrix_norm(total, 2).item()
    assert norm <= series_bound(spectral_norm_bound(a).item(), terms=5) <= norm * (1 + 1e-6)


def test_series_bound_is_infinite_without_a_norm() -> None:
    assert series_bound(math.inf, 5) == series_bound(math.nan, 5) == series_bound(1e300, 5) == math.inf
    assert series_bound(0.0, 5) == pytest.approx(1)
