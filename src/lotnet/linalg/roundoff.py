"""Bounds of the rounding error of a program: its distance from the real function of its stored tensors.

Every formula here is a theorem about programs made of sums and products in IEEE arithmetic with unit
round-off `u` and gradual underflow. It holds for any order of summation, any blocking, with or without fused
multiply-adds, as long as nothing overflows. It does not hold for algorithms that add *before* they multiply
(Winograd, FFT, Strassen).

`norm` always bounds the tensor that the program really reads. For an input `x` known up to an l2 error `e`, pass
`norm_in + e`, and add the Lipschitz bound of the exact operation times `e`.

The bounds are computed with `Upper`, so they hold to the last bit too.
"""

import math
from collections.abc import Iterable
from fractions import Fraction

import torch


def up(x: float) -> float:
    """The next float64 above: never below the real result of the one operation that was rounded to `x`."""
    return math.nextafter(x, math.inf)


def down(x: float) -> float:
    """The next float64 below: never above the real result of the one operation that was rounded to `x`."""
    return math.nextafter(x, -math.inf)


class Upper(float):
    """An upper bound of a nonnegative real number, with arithmetic that rounds upward.

    `+`, `*` and `sqrt` of `Upper`s, and of plain nonnegative numbers taken as exact, round outward, so a
    formula made of them is a proved bound; `/` takes an exact positive divisor. (So not `/ math.sqrt(k)`, but
    `* Upper(Fraction(1, k)).sqrt()`.) NaN becomes infinity, since it bounds nothing. Every other operation is
    `float`'s and returns a plain `float`, which proves nothing.
    """

    __slots__ = ()

    def __new__(cls, value: float | Fraction = 0.0) -> "Upper":
        try:
            nearest = float(value)
        except OverflowError:
            nearest = math.inf
        if math.isnan(nearest):
            nearest = math.inf
        if nearest < 0:
            raise ValueError(f"an Upper bounds a nonnegative number, not {value}")
        # Python compares integers and fractions with floats exactly: this catches conversions rounded down.
        return super().__new__(cls, nearest if nearest >= value else up(nearest))

    def __add__(self, other: float) -> "Upper":
        return Upper(up(float(self) + float(Upper(other))))

    def __mul__(self, other: float) -> "Upper":
        return Upper(up(float(self) * float(Upper(other))))

    __radd__ = __add__
    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "Upper":
        if isinstance(divisor, Upper) or not divisor > 0:
            raise TypeError("an Upper is divided by an exact positive number only")
        return Upper(up(float(self) / divisor))

    def sqrt(self) -> "Upper":
        return Upper(up(math.sqrt(self)))


def unit_roundoff(dtype: torch.dtype) -> float:
    """`u`: a rounded operation is the exact one times `1 + d`, `|d| <= u`. For complex dtypes, `u` of the parts."""
    return torch.finfo(dtype).eps / 2


def gamma(k: int, u: float) -> Upper:
    """`k u / (1 - k u) >= |(1 + d_1)...(1 + d_k) - 1|` for `|d_i| <= u`, any of the factors inverted.

    Infinite when `k u >= 1`. Since `u` is a power of two, `k u` and `1 - k u` are exact.
    Used throughout: `g_j + g_k + g_j g_k <= g_{j+k}`, and `k u <= g_k`.
    """
    return Upper(k * u) / (1 - k * u) if k * u < 1 else Upper(math.inf)


def rounding_error(roundings: int, magnitude: float, dtype: torch.dtype) -> Upper:
    """The master formula: `||fl(y) - y||_2 <= g_roundings magnitude`, plus underflow.

    Each entry of `y` is a sum of terms, each term reaches the result through at most `roundings` rounded
    operations (it is multiplied by that many `1 + d`), and `magnitude` bounds the l2 norm of the vector whose
    entries are the sums of the terms' absolute values. Roundings and magnitudes of elementwise programs:

        bias          x + b                   1   ||x|| + ||b||
        scale         a x                     1   |a| ||x||
        normalise     (x - m) / s             2   ||x - m|| / min s       <= (||x|| + ||m||) / min s
        residual      a x + b y               2   |a| ||x|| + |b| ||y||
        mean of k     (x_1 + ... + x_k) / k   k+1 ||x|| / sqrt k          disjoint windows, 1/k rounded or not
        one logit     w.x + b, K inputs       K+1 ||w|| ||x|| + |b|
    """
    # Underflow: a product or quotient below the normal range errs by u tiny more, and a later factor enlarges
    # that by less than 1/(2u): scales, 1/std, the unnormalised DFT. An entry takes at most 4 * roundings
    # operations and a tensor has fewer than 2^40 entries, so in l2 all of it stays below `underflow`.
    underflow = Upper(2**22 * roundings) * torch.finfo(dtype).tiny
    return gamma(roundings, unit_roundoff(dtype)) * (Upper(magnitude) + underflow) + underflow


def product_error(beta: float, terms: int, norm: float, dtype: torch.dtype) -> Upper:
    """A real product `y = W x` or spatial convolution of inner length `terms`: `g_terms beta ||x||`.

    `beta` bounds `|| |W| ||_2`, the norm of the entrywise absolute value (`bounds.beta`, `bounds.beta_conv`).
    Proof: a term of a sum of n products is rounded once as a product and at most n - 1 times in additions, so
    `|fl(y) - y| <= g_n |W| |x|` entry by entry. A convolution is such a product with n = i k k (padding adds
    zeros only). A bias makes it `rounding_error(terms + 1, beta ||x|| + ||b||)`, wherever it enters the sum.
    """
    return rounding_error(terms, Upper(beta) * norm, dtype)


def complex_product_error(beta: float, terms: int, norm: float, dtype: torch.dtype) -> Upper:
    """A complex product `y = W x` by four real products per term: `sqrt(2) g_{2 terms} beta ||x||`.

    `beta` bounds `|| |W| ||_2`, `|W|` the matrix of moduli. It holds for one real product with the block
    matrix `[[Re, -Im], [Im, Re]]`, for four separate products, and for complex multiply-adds.
    Proof: each part of y is a sum of 2 c real products, depth at most 2 c in each of these orders, and
    `|a x_r| + |b x_i| <= |w| |x|` (Cauchy-Schwarz); so both parts err by at most `g_2c |W| |x|`, and a
    modulus by sqrt 2 times that. (Three real products lose more: `sqrt(10) g_{c+4}`, as in `bounds`.)
    """
    return rounding_error(2 * terms, Upper(2).sqrt() * beta * norm, dtype)


def dft_error(sizes: Iterable[int], norm: float, dtype: torch.dtype) -> Upper:
    """`||fl(F x) - F x||`, F the exact DFT of `sizes`, as products with one stored matrix per axis.

    Forward or inverse, complex or real, any subset of rows and columns (padding, cropping). The entries are
    `s cos` and `s sin`, `0 < s <= 1` the normalisation of an axis, with `sqrt 2` more where only one of two
    mirrored frequencies is kept (one axis at most, its spectrum then an isometry of the real signal); as
    stored they are within `6 u` of that, relative to `s` or `sqrt(2) s`. `norm` bounds `||F|| ||x||`: `||x||`
    times `s sqrt n` for every axis, all 1 in an isometric transform.

    Proof, one axis, in units of `s sqrt n`. All moduli are s, so `|| |F| ||` is at most `s n`, hence sqrt n
    units; so it is with half a spectrum, where the squared moduli over its frequencies still sum to `n s^2`.
    Sums have at most 2n real products. Stored moduli are below `s (1 + 9 u)`, and the errors of entries, at
    most `6 sqrt(2) u s`, move the result by `6 sqrt(2) u sqrt n`. With the complex product error:
    `sqrt(2n) (g_2n (1 + 9 u) + 6 u) <= sqrt(2n) g_{2n+9}`, times the norm of what is read.
    Two axes: half a spectrum may hold all the energy of a signal that is not real, so the halved axis, or its
    transpose, has norm sqrt 2: it may enlarge an earlier error, or what a later axis reads, by that much.
    """
    error, root = Upper(0), Upper(2).sqrt()
    for n in sizes:
        error = root * error + rounding_error(2 * n + 9, Upper(2 * n).sqrt() * (root * norm + error), dtype)
    return error


def householder_error(v_norm: float, size: int, norm: float, dtype: torch.dtype) -> Upper:
    """`z - 2 v relu(v.z)` on groups of `size` entries, `v_norm >= ||v||`: `g_{size+2} (1 + 2 ||v||^2) ||z||`.

    Proof: `v.z` errs by at most `g_size |v|.|z|`, relu does not enlarge that, doubling is exact, the product
    with v and the difference round once each: `|error_i| <= g_{size+2} (|z_i| + 2 |v_i| |v|.|z|)`.
    """
    return rounding_error(size + 2, (Upper(v_norm) * v_norm * 2 + 1) * norm, dtype)


def householder_bound(v_norm: float) -> Upper:
    """Lipschitz bound of `z - 2 v relu(v.z)` for the stored, rounded `v`: `max(1, 2 ||v||^2 - 1)`.

    Proof: the map is continuous, and linear on either side of `v.z = 0`: I, or `I - 2 v v^T` with eigenvalues
    1 and `1 - 2 ||v||^2`.
    """
    return Upper(max(1.0, up(float(Upper(v_norm) * v_norm * 2) - 1)))
