"""Solvers of `H S + S H = K` for Hermitian positive `H` and skew-Hermitian `K`, as in the gradient of `polar`."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from lotnet.kernels import dispatch
from lotnet.linalg.complex_layout import real_blocks, stacked, unstacked


def solve_by_eigh(h: Tensor, k: Tensor, lower: float) -> tuple[Tensor, Tensor]:
    """Return `S` and `H^(-1)`, by an eigendecomposition of `H`: exact, and fast on a CPU.

    Eigenvalues of `H` below `lower` are raised to it, so both results are finite.
    """
    values, vectors = torch.linalg.eigh(h)
    values = values.clamp_min(lower)
    rotated = vectors.mH @ k @ vectors
    s = vectors @ (rotated / (values[..., :, None] + values[..., None, :])) @ vectors.mH
    return s, (vectors / values[..., None, :]) @ vectors.mH


def solve_by_products(h: Tensor, k: Tensor, lower: float, tolerance: float) -> Tensor:  # f m m, f m m -> f m m
    """Return `S` within `tolerance`, by one matrix product per step: fast on a GPU, where eigenvectors are expensive.

    This is Chebyshev iteration for the positive operator `L: S -> HS + SH`, whose eigenvalues are sums of two of `H`.
    Its coefficients are known beforehand, so nothing is read back from the device. Eigenvalues of `H` below `lower` are
    solved for only in part: the error there is a polynomial in `L` with values in [0, 1], so `S` is bounded by a
    multiple of `K / lower`, whatever `H` is. Complex matrices are computed as real ones, with stacked parts.
    """
    if k.is_complex():
        return unstacked(_chebyshev(real_blocks(h), stacked(k), lower, tolerance))
    return _chebyshev(h, k, lower, tolerance)


# Rounding (TF32's at worst) may lift the largest eigenvalue above one. Outside of its interval the iteration diverges.
_UPPER = 1.01


def _chebyshev(h: Tensor, k: Tensor, lower: float, tolerance: float) -> Tensor:
    first, rest = chebyshev_steps(lower, tolerance)
    s, before = first * k, torch.zeros_like(k)
    for momentum, gain in rest:
        # Since S is skew, `L S = HS - (HS)*`.
        s, before = dispatch.chebyshev_update(s, before, k, h @ s, momentum, gain), s
    return s


@lru_cache(maxsize=64)
def chebyshev_steps(lower: float, tolerance: float) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Coefficients: the first iterate's multiple of `K`, then (momentum, gain) of each further step.

    A step is `S + momentum (S - before) + gain (K - L S)`.
    """
    center, radius = _UPPER + lower, _UPPER - lower
    ratio, rest = radius / center, []
    for _ in range(1, steps(lower, tolerance)):
        following = 1 / (2 * center / radius - ratio)
        rest.append((following * ratio, 2 * following / radius))
        ratio = following
    return 1 / center, tuple(rest)


def steps(lower: float, tolerance: float) -> int:
    """Number of steps after which the error is below `tolerance` for every spectrum in `[lower, 1]`."""
    root = math.sqrt(lower / _UPPER)
    return max(2, math.ceil(math.log(2 / tolerance) / math.log((1 + root) / (1 - root)))) if root < 1 else 2
