"""The paper's bounds as functions. docs/theory.md says under which reading each bound is true.

Semi-supervised learning: a student `G` with values in [0, 1] is fitted to the labels `G_pl` of a teacher (the paper's
labeller), which is wrong with probability `labeler_error`. With `L(G, H) = E |G - H|`, the *disagreement* is
`L(G, G_pl)`, the error is `L(G, G*)`, and the *consistency* is the probability of points near which `G` changes by more
than `delta`.

Every bound assumes expansion: within each class, any set of points at most as probable as the labeller's mistakes has a
neighbourhood at least `c` times as probable. So the share of mistakes in each class is at most `1/c`.

Given `Fraction`s, the functions are exact.
"""

from fractions import Fraction
from typing import TypeVar

import torch
from torch import Tensor

from lotnet.errors import InputError
from lotnet.paper.newton_bound import newton_error_bound

__all__ = ["certified_radius_bound", "error_bound", "fewest_steps", "loss_bound", "newton_error_bound"]

Number = TypeVar("Number", float, Fraction)

_MOST_STEPS = 64  # rho^(2^64) is zero for every double rho below one


def fewest_steps(v: Tensor, tolerance: float) -> int:  # (..., m, n)
    """Fewest steps of the paper's iteration for which every `||Z_k V||_2` is proved to be at most `1 + tolerance`.

    It grows as `2 log2 cond(V) + log2 log(cond(V) / tolerance)`. The proof needs so many steps, although the norm
    itself never exceeds one. The theorem is about matrices with no more rows than columns; transpose the others.
    """
    if not tolerance > 0:
        raise InputError(
            f"the tolerance is {tolerance}: give a positive number, because no finite number of steps reaches zero"
        )
    v = v.to(torch.complex128 if v.is_complex() else torch.float64)
    if not bool(v.isfinite().all()):
        raise InputError("a matrix has NaN or infinite entries: Newton's bound needs finite ones")
    if bool(v.flatten(-2).any(dim=-1).all()):  # a zero matrix cannot be rescaled
        for steps in range(_MOST_STEPS + 1):
            if bool((newton_error_bound(v, steps) <= 1 + tolerance).all()):
                return steps
    raise InputError(
        "a matrix does not have full row rank to working precision, so Newton's bound does not apply: use another "
        "kernel, or the transpose if it has more rows than columns"
    )


def error_bound(c: Number, mu: Number, labeler_error: Number) -> Number:
    """Theorem 2: error of the best student, `4/(c-1) Err(G_pl) + (2c+2)/(c-1) mu`.

    `mu` is the probability of points that have a point of another class nearby. The best student minimises `loss_bound`
    over all functions. A trained student is not known to be the best one.
    """
    _check(c, labeler_error, mu=mu)
    return (4 * labeler_error + (2 * c + 2) * mu) / (c - 1)


def loss_bound(
    c: Number, disagreement: Number, consistency: Number, labeler_error: Number, delta: float | Fraction = 0
) -> Number:
    """The main lemma: error of any student, `(c+3)/(c-1) L(G, G_pl) + (2c+2)/(c-1) R(G; delta) - Err(G_pl)`.

    `delta`, at most `1/c`, is the change that `consistency` was measured with. The bound does not depend on it. A
    negative value means that no student has these numbers under the assumptions.
    """
    _check(c, labeler_error, disagreement=disagreement, consistency=consistency)
    if not 0 <= delta <= 1 / c:
        raise InputError(f"the change delta is {delta}: the bound needs one from 0 to 1/c = {1 / c}")
    return ((c + 3) * disagreement + (2 * c + 2) * consistency) / (c - 1) - labeler_error


def certified_radius_bound(
    c: Number,
    disagreement: Number,
    consistency: Number,
    labeler_error: Number,
    lipschitz: Number,
    delta: float | Fraction = 0,
) -> Number:
    """Theorem 3: mean radius in which the student's rounded prediction is correct, at least `(1/2 - L(G)) / Lip(G)`.

    The mean is over all points, with radius zero where the prediction is wrong. A bound of zero or less says nothing.
    """
    if not lipschitz > 0:
        raise InputError(f"the Lipschitz constant is {lipschitz}: give a positive one")
    return (1 - 2 * loss_bound(c, disagreement, consistency, labeler_error, delta)) / (2 * lipschitz)


def _check(c: float | Fraction, labeler_error: float | Fraction, **probabilities: float | Fraction) -> None:
    if not c > 3:
        raise InputError(f"the expansion c is {c}: the bound needs one above 3")
    for name, value in {"labeler_error": labeler_error, **probabilities}.items():
        if not 0 <= value <= 1:
            raise InputError(f"{name} is {value}: it is a probability, give a number from 0 to 1")
    if not labeler_error < Fraction(1, 3):
        raise InputError(f"the labeller's error is {labeler_error}: the bound needs one below 1/3, so train it longer")
    if labeler_error * c > 1:
        raise InputError(
            f"the labeller's error is {labeler_error}, more than 1/c = {1 / c}: its mistakes cannot expand c times, "
            "so give a smaller c"
        )
