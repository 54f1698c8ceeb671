"""`H S + S H = K`, `H` Hermitian positive and `K` skew-Hermitian: the equation in a polar factor's derivative."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from lotnet.kernels import dispatch
from lotnet.linalg.complex_layout import real_blocks, stacked, unstacked


def by_eigenvectors(h: Tensor, k: Tensor, lower: float) -> tuple[Tensor, Tensor]:
    """`S`, and `H^(-1)`; eigenvalues of `H` count as at least `lower`, so both are finite. Exact, and good on a CPU."""
    values, vectors = torch.linalg.eigh(h)
    values = values.clamp_min(lower)
    rotated = vectors.mH @ k @ vectors
    s = vectors @ (rotated / (values[..., :, None] + values[..., None, :])) @ vectors.mH
    return s, (vectors / values[..., None, :]) @ vectors.mH


def by_products(h: Tensor, k: Tensor, lower: float, tolerance: float) -> Tensor:  # f m m, f m m -> f m m
    """`S` within `tolerance` of the solution, one product a step: good on a GPU, where eigenvectors are expensive.

    Chebyshev's iteration for the positive operator `L: S -> HS + SH`, whose spectrum lies in twice that of `H`.
    Its coefficients are known beforehand, so nothing is read back from the device. Eigenvalues of `H` below `lower` are
    solved for only in part: the error is a polynomial in `L` with values in [0, 1] there, so `S` stays bounded by
    a multiple of `K / lower`, whatever `H` is. All in real arithmetic, parts stacked.
    """
    if k.is_complex():
        return unstacked(_chebyshev(real_blocks(h), stacked(k), lower, tolerance))
    return _chebyshev(h, k, lower, tolerance)


# Rounding, TF32's at worst, may lift the largest eigenvalue above one, and beyond its interval the iteration grows.
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
    """The first iterate is that multiple of `K`; a step is `S + momentum (S - before) + gain (K - L S)`."""
    centre, radius = _UPPER + lower, _UPPER - lower
    ratio, rest = radius / centre, []
    for _ in range(1, steps(lower, tolerance)):
        following = 1 / (2 * centre / radius - ratio)
        rest.append((following * ratio, 2 * following / radius))
        ratio = following
    return 1 / centre, tuple(rest)


def steps(lower: float, tolerance: float) -> int:
    """Steps after which the error is below `tolerance` for every spectrum in `[lower, 1]`."""
    root = math.sqrt(lower / _UPPER)
    return max(2, math.ceil(math.log(2 / tolerance) / math.log((1 + root) / (1 - root)))) if root < 1 else 2
