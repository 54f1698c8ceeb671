"""SOC: the skew kernel, its proved norm, and the error of the truncated series."""

import pytest
import torch
from torch import Tensor

from lotnet.errors import InputError
from lotnet.linalg.fourier import Grid, transfer
from lotnet.operators import Operator, Series
from lotnet.parametrizations import SOC, Geometry
from lotnet.parametrizations.soc import _norm_bound, _unfolding_bound


def random_weight(o: int, i: int, k: int, seed: int = 0) -> Tensor:
    return torch.randn(o, i, k, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def series(weight: Tensor, side: int = 6, padding_mode: str = "zeros", **settings: int) -> Series:
    o, i, k, _ = weight.shape
    operator = SOC(**settings).operator(weight, Geometry(o, i, k, side, side, padding_mode), frozen=True)
    assert isinstance(operator, Series)
    return operator


def dense(operator: Operator, channels: int, side: int) -> Tensor:
    n = channels * side**2
    return operator.apply(torch.eye(n, dtype=torch.float64).view(n, channels, side, side)).flatten(1).T


@pytest.mark.parametrize("k", (1, 2, 3, 4, 5))
def test_the_kernel_is_skew_to_the_last_bit(k: int) -> None:
    kernel = series(random_weight(3, 4, k)).skew.kernel
    assert kernel.shape == (4, 4, k + 1 - k % 2, k + 1 - k % 2)
    assert torch.equal(kernel, -kernel.transpose(0, 1).flip(-2, -1))


@pytest.mark.parametrize("k", (2, 4))
def test_an_even_kernel_keeps_its_centre(k: int) -> None:
    weight = torch.zeros(2, 2, k, k, dtype=torch.float64)
    weight[0, 1, (k - 1) // 2, (k - 1) // 2] = 1
    kernel = series(weight).skew.kernel
    at_centre = kernel[:, :, k // 2, k // 2]
    assert at_centre[0, 1] == -at_centre[1, 0] != 0
    assert kernel.count_nonzero() == 2


@pytest.mark.parametrize("k", (1, 2, 3, 5))
@pytest.mark.parametrize("channels", ((2, 2), (5, 3), (8, 8)))
def test_the_norm_is_what_the_bound_assumes(channels: tuple[int, int], k: int) -> None:
    for seed in range(5):
        kernel = series(random_weight(*channels, k, seed)).skew.kernel
        odd = kernel.shape[-1]
        norm = torch.linalg.matrix_norm(transfer(kernel, Grid(40, 40)), ord=2).max()
        assert norm <= (0.7 * odd if odd > 1 else 1.0) + 1e-12
        assert norm >= 0.5  # scaled up to one size, as published


def test_the_unfolding_bound_is_above_all_four_or_the_smallest() -> None:
    for seed in range(5):
        kernel = 1e5 * series(random_weight(6, 6, 3, seed)).skew.kernel
        c, k = 6, 3
        unfoldings = (
            kernel.reshape(c, -1),
            kernel.transpose(0, 1).reshape(c, -1),
            kernel.permute(0, 2, 1, 3).reshape(c * k, c * k),
            kernel.permute(0, 3, 1, 2).reshape(c * k, c * k),
        )
        norms = torch.stack([torch.linalg.matrix_norm(m, ord=2) for m in unfoldings])
        assert torch.allclose(norms[0], norms[1]) and torch.allclose(norms[2], norms[3])
        assert norms.min() <= _unfolding_bound(kernel) <= 1.1 * norms.min()


@pytest.mark.parametrize("shape", ((1, 1), (5, 5), (3, 9), (9, 3), (64, 64)))
def test_gram_squaring_bounds_the_norm_at_any_scale(shape: tuple[int, int]) -> None:
    for scale in (1e-60, 1.0, 1e60):
        x = scale * torch.randn(*shape, dtype=torch.float64)
        norm = torch.linalg.matrix_norm(x, ord=2)
        assert norm * (1 - 1e-14) <= _norm_bound(x) <= norm * min(shape) ** (1 / 64) * (1 + 1e-14)


@pytest.mark.parametrize("padding_mode", ("zeros", "circular"))
@pytest.mark.parametrize("k", (1, 2, 3))
def test_the_full_series_is_the_orthogonal_exponential(k: int, padding_mode: str) -> None:
    operator = series(random_weight(2, 2, k), padding_mode=padding_mode, frozen_terms=40)
    skew = dense(operator.skew, 2, 6)
    assert torch.allclose(skew, -skew.T, atol=1e-14)
    exponential = dense(operator, 2, 6)
    assert torch.allclose(exponential, torch.linalg.matrix_exp(skew), atol=1e-12)
    assert torch.allclose(exponential @ exponential.T, torch.eye(72, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("terms", (1, 2, 3, 5, 8))
def test_the_truncated_series_stays_below_its_stated_bound(terms: int) -> None:
    for k in (1, 2, 3, 5):
        operator = series(random_weight(2, 2, k), side=8, padding_mode="circular", frozen_terms=terms)
        largest = torch.linalg.matrix_norm(dense(operator, 2, 8), ord=2)
        assert largest <= SOC(frozen_terms=terms).lipschitz_bound(k, frozen=True) + 1e-12


def test_the_stated_bound_is_the_largest_value_of_the_series() -> None:
    t = torch.linspace(0, 2.1, 100001, dtype=torch.float64)
    total = term = torch.ones_like(t) + 0j
    for j in range(1, 6):
        term = term * (1j * t) / j
        total = total + term
    assert SOC(terms=5).lipschitz_bound(3) == pytest.approx(total.abs().max().item(), rel=1e-9)
    assert 1.004 < SOC().lipschitz_bound(3) < 1.005  # five terms, in training, exceed one
    assert SOC().lipschitz_bound(3, frozen=True) <= 1 + 1e-15  # twelve do not


def test_scale_does_not_matter() -> None:
    weight = random_weight(3, 3, 3)
    reference = series(weight).skew.kernel
    assert torch.equal(series(2.0**-30 * weight).skew.kernel, reference)
    assert torch.allclose(series(1e6 * weight).skew.kernel, reference, rtol=1e-13)


def test_a_symmetric_kernel_is_the_identity_and_has_a_nonzero_gradient() -> None:
    weight = torch.eye(3)[:, :, None, None].requires_grad_()
    x = torch.randn(1, 3, 4, 4)
    y = SOC().operator(weight, Geometry(3, 3, 1, 4, 4)).apply(x)
    assert torch.equal(y, x)
    (y * torch.randn_like(y)).sum().backward()
    assert weight.grad is not None and torch.isfinite(weight.grad).all() and weight.grad.abs().max() > 0


@pytest.mark.parametrize("terms", (0, -1, 2.5))
def test_terms_must_be_a_positive_integer(terms: float) -> None:
    for settings in ({"terms": terms}, {"frozen_terms": terms}):
        with pytest.raises(InputError, match="a whole number of terms, at least 1"):
            SOC(**settings)
