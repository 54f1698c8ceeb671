"""Proved upper bounds of norms: of stored tensors, of the matrices they hold, of a truncated exponential.

Every returned value is at least the norm of exactly the stored numbers, in real arithmetic and at any
magnitude. Input that is not finite gives infinity. Tensors are converted to float64 (exactly) and divided by a
power of two, so that the largest real or imaginary part lies in [1/2, 1) and neither overflow nor underflow
matters. (Subnormal numbers must be read as they are: torch's default, undone by `set_flush_denormal`.)
"""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import torch
from torch import Tensor

from lotnet.linalg.roundoff import Upper, gamma, unit_roundoff

_U = unit_roundoff(torch.float64)

# After scaling every norm is at least 1/2 (or all is zero), and the formulas are sums, products, quotients
# and roots of nonnegative numbers. So this factor covers their own few dozen float64 roundings, and every
# underflow: fewer than 2^40 entries, each off by less than 2^-500.
_OUTWARD = 1 + 2.0**-45

# Relative excess of the Cholesky shift over the estimate of lambda_max. It is far above the rounding of the
# factorisation (about m^2 u), and loosens the bound of the singular value by only half as much.
_MARGIN = 2.0**-23


def norm_bound(x: Tensor, dim: int | tuple[int, ...] | None = None) -> Tensor:
    """Upper bound of the l2 norm over `dim` (default: all), float64. For Frobenius norms pass `dim=(-2, -1)`."""
    dims = tuple(range(x.ndim)) if dim is None else (dim,) if isinstance(dim, int) else dim
    x, size = _scaled(x, dims)
    return _unscaled(_square_sum(x, dims).sqrt(), size)


def constant_image_norm(values: Tensor, pixels: int) -> Upper:  # (c,) -> ()
    """Upper bound of the l2 norm of an image in which each channel has its value at all pixels."""
    return Upper(pixels).sqrt() * float(norm_bound(values))


def beta(w: Tensor) -> Tensor:
    """`sqrt(||W||_1 ||W||_inf) >= || |W| ||_2`, |W| the matrix of moduli.  (..., m, n) -> (...)"""
    return _in_chunks(w, lambda chunk: _absolute_bound(chunk, row=(2,), column=(1,)), 2**16)


def beta_conv(kernel: Tensor) -> Tensor:
    """`beta` for the operator of a spatial convolution, any padding, stride and image.  (o, i, k, k) -> ()

    Each row of the operator holds taps of one output channel, and each column taps of one input channel, none
    more than once (taps that circular padding folds together add up). So the sums of |kernel| over (i, k, k)
    bound its row sums, and the sums over (o, k, k) its column sums.
    """
    return _absolute_bound(kernel, row=(1, 2, 3), column=(0, 2, 3))


def spectral_norm_bound(w: Tensor) -> Tensor:
    """Upper bound of the largest singular value of each matrix, real or complex.  (..., m, n) -> (...), float64

    Tight to 6e-8 relative at any condition, rank and scale (to 6 m n u where that is more).

    Proof. On the short side let `G = fl(W W*) = W W* + E` and `A = fl(s I - G)`, and let R be *any* matrix.
    Then `s I - W W* = R R* + (A - R R*) + (rounding of A's diagonal) + E`, and `R R*` is nonnegative, so

        sigma^2 = lambda_max(W W*) <= s + ||A - R R*|| + u max |a_ii| + ||E||.

    `A - R R*` is computed, and the error of that product is added. Choosing R as a Cholesky factor only makes
    the bound tight: s is just above an *estimate* of lambda_max, on which the proof does not rely. The estimate
    comes from a small subspace if the largest singular values cluster (orthogonal layers), else from all
    eigenvalues. If even that fails, the Frobenius norm still holds.
    """
    if w.shape[-2] > w.shape[-1]:
        w = w.mH
    return _in_chunks(w, _short_spectral_norm_bound, 2**19)


def series_bound(theta: float, terms: int) -> Upper:
    """Upper bound of `|S(i t)|` over `0 <= t <= theta`, for `S(z) = 1 + z + ... + z^terms / terms!`.

    It bounds `||S(A)||_2` for every skew-symmetric A with `||A||_2 <= theta`, because such an A is normal, with
    eigenvalues `i t`. S is the truncated exponential of SOC (skew orthogonal convolution). Tight to 2^-40.

    Proof. `p(x) = |S(i t)|^2` is a polynomial in `x = t^2` with rational coefficients. On an interval it is
    an average of its Bernstein coefficients, so the largest of them bounds it; the first and the last are
    values of p. Intervals are halved, in exact arithmetic, until no coefficient exceeds the largest value
    by over 2^-40.
    """
    if not theta < math.inf:
        return Upper(math.inf)
    power = [p * Fraction(theta) ** (2 * j) for j, p in enumerate(_series_squared(terms))]
    to_bernstein = [[Fraction(math.comb(k, j), math.comb(terms, j)) for j in range(k + 1)] for k in range(terms + 1)]
    intervals = [[sum((c * p for c, p in zip(row, power, strict=False)), Fraction(0)) for row in to_bernstein]]
    largest = bound = Fraction(1)  # p(0)
    while intervals:
        coefficients = intervals.pop()
        largest = max(largest, coefficients[0], coefficients[-1])
        if max(coefficients) <= largest * (1 + Fraction(1, 2**40)):
            bound = max(bound, *coefficients)
        else:
            intervals += _halves(coefficients)
    return Upper(bound).sqrt()


def _in_chunks(w: Tensor, bound: Callable[[Tensor], Tensor], numbers: int) -> Tensor:  # (..., m, n) -> (...), float64
    """A bound of each matrix, about `numbers` entries at a time: faster than one batch, and in bounded memory."""
    if w.numel() == 0:
        return torch.zeros(w.shape[:-2], dtype=torch.float64, device=w.device)
    matrices = w.reshape(-1, *w.shape[-2:])
    chunks = matrices.split(max(1, numbers // matrices[0].numel()))
    return torch.cat([bound(chunk) for chunk in chunks]).reshape(w.shape[:-2])


def _short_spectral_norm_bound(w: Tensor) -> Tensor:  # (f, m, n), m <= n -> (f,)
    w, size = _scaled(w, (1, 2))
    gram, error, square = w @ w.mH, _gram_error(w), _square_sum(w, (1, 2))
    todo = torch.arange(len(w), device=w.device)
    for estimate in (_ritz_estimate, _eigenvalue_estimate):
        shift = estimate(gram[todo]).clamp(min=0) * (1 + _MARGIN)
        proved = _cholesky_bound(gram[todo], shift) + error[todo]
        square[todo] = torch.fmin(square[todo], proved)  # fmin: a NaN proves nothing
        todo = todo[~(proved <= shift * (1 + _MARGIN))]
        if len(todo) == 0:
            break
    return _unscaled(square.sqrt(), size)


def _cholesky_bound(gram: Tensor, shift: Tensor) -> Tensor:  # (f, m, m), (f,) -> (f,)
    """Bound of lambda_max of `gram`: the shift, plus the distance of `shift I - gram` from some `R R*`."""
    a = -gram
    diagonal = a.diagonal(dim1=1, dim2=2)
    diagonal += shift[:, None]
    r = torch.linalg.cholesky_ex(a).L
    residual = _square_sum(a - r @ r.mH, (1, 2)).sqrt()
    return shift + residual + _gram_error(r) + _U * diagonal.abs().amax(1)


def _gram_error(x: Tensor) -> Tensor:  # (f, m, n) -> (f,)
    """`||fl(X X*) - X X*||_F <= g_n ||X||_F^2` if X is real, `sqrt(10) g_{2n+4} ||X||_F^2` if complex.

    Proof. An entry is a sum of n products `x conj(y)`, and `|| |X| |X|* ||_F <= ||X||_F^2` for the moduli |X|
    (Cauchy-Schwarz), so it suffices to bound an entry's error by the constant times the sum of `|x| |y|`.
    Real: g_n, in any order. Complex, `x = a + ib`, `y = c + id`, by four real products: each part sums 2n of
    them and `|a c| + |b d| <= |x| |y|`, hence `sqrt(2) g_2n`. By three, as some libraries may: the real part
    `P - Q` errs by `g_{n+1} |x| |y|`, the imaginary part `(a + b)(c + d) - P - Q` (signs aside) by
    `g_{n+4} ((|a| + |b|)(|c| + |d|) + |a c| + |b d|) <= 3 g_{n+4} |x| |y|`: together `sqrt(1 + 9)`.
    """
    n = x.shape[-1]
    constant = Upper(10).sqrt() * gamma(2 * n + 4, _U) if x.is_complex() else gamma(n, _U)
    return float(constant) * _square_sum(x, (1, 2))


def _ritz_estimate(gram: Tensor) -> Tensor:  # (f, m, m) -> (f,)
    """lambda_max on a subspace: accurate if its dimension exceeds the number of eigenvalues outside the top cluster."""
    m = gram.shape[-1]
    v = torch.randn(m, min(m, 16), generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(gram)
    for _ in range(4):
        v = gram @ v
    q = torch.linalg.qr(v).Q
    return _eigenvalue_estimate(q.mH @ gram @ q)


def _eigenvalue_estimate(gram: Tensor) -> Tensor:  # (f, m, m) -> (f,)
    return torch.linalg.eigvalsh(gram)[:, -1]


def _absolute_bound(w: Tensor, row: tuple[int, ...], column: tuple[int, ...]) -> Tensor:
    """Square root of the largest sum of moduli over `row` times the largest over `column`; other axes are batch."""
    dims = tuple({*row, *column})
    w, size = _scaled(w, dims)
    modulus = _squares(w).sqrt_()  # three roundings
    sums = [modulus.sum(d, keepdim=True).amax(dims) for d in (row, column)]
    terms = math.prod(w.shape[d] for d in dims) + 3
    return _unscaled((sums[0] * sums[1]).sqrt() / (1 - float(gamma(terms, _U))), size)


def _square_sum(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Upper bound of the squared l2 norm, up to `_OUTWARD`: a sum of N squares has a relative error of at most g_N."""
    terms = math.prod(x.shape[d] for d in dims) * (2 if x.is_complex() else 1)
    return _squares(x).sum(dims) / (1 - float(gamma(terms, _U)))


def _squares(x: Tensor) -> Tensor:
    return x.real.square().add_(x.imag.square()) if x.is_complex() else x.square()


def _scaled(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Convert `x` to float64 and scale its largest part to [1/2, 1). Return the result and the size of that part.

    Slices that are not finite become 0.
    """
    size = torch.maximum(x.real.abs(), x.imag.abs()) if x.is_complex() else x.abs()
    size = size.to(torch.float64).amax(dims, keepdim=True)
    x = x.to(torch.complex128 if x.is_complex() else torch.float64).where(size.isfinite(), 0)  # a copy
    first, second = _powers_of_two(size, -1)
    return x.mul_(first).mul_(second), size.squeeze(dims)


def _unscaled(bound: Tensor, size: Tensor) -> Tensor:
    """Undo `_scaled`, outward. The first factor leaves normal numbers, so only the second can round."""
    first, second = _powers_of_two(size, 1)
    bound = torch.nextafter(bound * _OUTWARD * first * second, torch.full_like(bound, math.inf))
    return bound.where(size.isfinite(), math.inf).where(size != 0, 0)


def _powers_of_two(size: Tensor, sign: int) -> tuple[Tensor, Tensor]:
    """Two factors of `2^(sign e)`, for size in [2^(e-1), 2^e): one alone may overflow. Built from bits, so exact."""
    exponent = sign * torch.frexp(size.where(size.isfinite(), 1)).exponent.long()
    half = exponent // 2
    return ((half + 1023) << 52).view(torch.float64), ((exponent - half + 1023) << 52).view(torch.float64)


def _series_squared(terms: int) -> list[Fraction]:
    """Coefficients of `t^(2j)` in `|S(i t)|^2 = S(i t) S(-i t)`, j = 0..terms."""
    inverse = [Fraction(1, math.factorial(a)) for a in range(terms + 1)]
    pairs = [range(max(0, 2 * j - terms), min(2 * j, terms) + 1) for j in range(terms + 1)]
    return [
        sum(((-1) ** (a + j) * inverse[a] * inverse[2 * j - a] for a in pair), Fraction(0))
        for j, pair in enumerate(pairs)
    ]


def _halves(c: list[Fraction]) -> list[list[Fraction]]:
    """Bernstein coefficients on the two halves of the interval (de Casteljau)."""
    left, right = [c[0]], [c[-1]]
    while len(c) > 1:
        c = [(a + b) / 2 for a, b in pairwise(c)]
        left.append(c[0])
        right.append(c[-1])
    return [left, right[::-1]]
