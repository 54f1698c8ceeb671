"""Odd polynomials that drive singular values to one.

Applying an odd polynomial to a matrix through `X <- aX + (b A + c A^2) X`, `A = X X*`, maps each singular
value `s` to `a s + b s^3 + c s^5` and does not change the singular vectors. A *schedule* is a sequence of such
polynomials that takes every singular value of an interval `[lower, 1]` to within `tolerance` of one.

Invariant of a schedule: its last polynomial is the cubic `s (3 - s^2) / 2`, whose absolute value is at most one
on `[0, 2]`, and all values before it stay in `[0, 2]`. So in exact arithmetic every singular value that
starts in `[0, 1]` ends in `[0, 1]`, inside the interval or not.
"""

import math
from functools import lru_cache

from lotnet.errors import InputError

Polynomial = tuple[float, float, float]  # a, b, c of  a s + b s^3 + c s^5

CUBIC: Polynomial = (1.5, -0.5, 0.0)  # one Newton-Schulz step
_TAYLOR: Polynomial = (15 / 8, -10 / 8, 3 / 8)  # the best quintic's limit as the interval shrinks to {1}

# Rounding moves singular values out of the interval the last polynomial left; each polynomial is therefore
# fitted to an interval wider by this factor on both sides. The resulting error is of third order in it.
_CUSHION = 1e-3
# Best quintics of wide intervals reach 2, where the cubic's invariant ends: they are scaled down to this maximum.
_CEILING = 1.99
# The best quintic of a wide interval dips to 1 - error, about 8 times the lower end, in the middle of it. A
# benign singular value there would drown in rounding errors and come back with arbitrary vectors. Fitted to a
# lower end of at least this times the upper, it stays above 0.2; the slope at zero is 7.4 instead of 8.5, which
# costs the intervals in use no step.
_FLOOR = 0.03
# Within its cushion the last quintic leaves an error of 2.5e-9, and the cubic squares it: no schedule does better.
_FINEST = 1e-16


def evaluate(polynomial: Polynomial, s: float) -> float:
    a, b, c = polynomial
    return s * (a + s * s * (b + s * s * c))


def best_quintic(lower: float, upper: float) -> tuple[Polynomial, float]:
    """The odd quintic nearest to one on `[lower, upper]` in the maximum norm, and its error.

    Remez exchange: the error equioscillates at `lower < q < r < upper`, with `q`, `r` the two stationary points.
    """
    if upper - lower < 1e-2 * upper:  # the exchange loses its digits here, and Taylor's quintic is as good
        mid = (lower + upper) / 2
        a, b, c = _TAYLOR
        fitted = (a / mid, b / mid**3, c / mid**5)
        return fitted, max(abs(1 - evaluate(fitted, lower)), abs(1 - evaluate(fitted, upper)))
    q, r = (3 * lower + upper) / 4, (lower + 3 * upper) / 4
    error = 0.0
    while True:
        a, b, c, level = _solve_equioscillation((lower, q, r, upper))
        # p'(s) = a + 3 b s^2 + 5 c s^4, written for s^2 in the form that does not cancel.
        disc = math.sqrt(9 * b * b - 20 * a * c)
        q, r = math.sqrt(2 * a / (-3 * b + disc)), math.sqrt((-3 * b + disc) / (10 * c))
        if level <= error * (1 + 1e-12):  # the level rises to the optimum from below
            return (a, b, c), error
        error = level


def _solve_equioscillation(points: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Solve `p(x_i) + (-1)^i level = 1` for the coefficients and the level."""
    rows = [[x, x**3, x**5, (-1.0) ** i, 1.0] for i, x in enumerate(points)]
    for col in range(4):
        pivot = max(range(col, 4), key=lambda i: abs(rows[i][col]))
        rows[col], rows[pivot] = rows[pivot], rows[col]
        rows[col] = [value / rows[col][col] for value in rows[col]]
        for i in range(4):
            if i != col:
                factor = rows[i][col]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[col], strict=True)]
    a, b, c, level = (row[4] for row in rows)
    return a, b, c, level


@lru_cache(maxsize=256)
def schedule(lower: float, tolerance: float) -> tuple[Polynomial, ...]:
    """Quintics for `[lower, 1]`, then the cubic, ending within `tolerance` of one from below.

    Never truncate a schedule: each polynomial is fitted to the interval that the one before it leaves, and the
    values in between are as large as 1.9.
    """
    if not (0 < lower <= 1 and _FINEST <= tolerance < 1):
        raise InputError(
            f"a schedule needs 0 < lower <= 1 and {_FINEST:g} <= tolerance < 1, not {lower} and {tolerance}: give it "
            "these"
        )
    steps: list[Polynomial] = []
    upper = 1.0
    # The cubic maps 1 + e to 1 - 3/2 e^2 - e^3/2.
    while max(1 - lower, upper - 1) > math.sqrt(tolerance / 2):
        lower, upper = lower * (1 - _CUSHION), upper * (1 + _CUSHION)
        (a, b, c), error = best_quintic(max(lower, _FLOOR * upper), upper)
        factor = min(1.0, _CEILING / (1 + error))
        steps.append((factor * a, factor * b, factor * c))
        lower, upper = min(evaluate(steps[-1], lower), factor * (1 - error)), factor * (1 + error)
    return (*steps, CUBIC)


@lru_cache(maxsize=64)
def min_sigma_for_length(length: int, tolerance: float) -> float:
    """The smallest `lower`, to two millionths, whose schedule has no more than `length` polynomials."""
    low, high = 1e-16, 1.0
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        fits = len(schedule.__wrapped__(middle, tolerance)) <= length  # uncached: each `middle` is used only once
        low, high = (low, middle) if fits else (middle, high)
    return min(1.0, high * (1 + 1e-6))  # so that rounding on the way back to `schedule` adds no polynomial
