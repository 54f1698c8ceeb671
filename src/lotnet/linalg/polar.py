"""The polar factor `W = (V V*)^(-1/2) V` of a batch of matrices, and its derivative.

`W` is the nearest matrix to `V` with orthonormal rows (or columns, whichever are fewer): with `V = P S Q*`,
`W = P Q*`. On a GPU the forward pass uses only matrix products, so it runs at the speed of the hardware in any
precision. On a CPU, decompositions are faster: `linalg.polar_svd`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lotnet.kernels import dispatch
from lotnet.linalg import polar_svd, sylvester
from lotnet.linalg.polynomials import Polynomial, schedule

# On a GPU the equation for the gradient is solved to this tolerance, far below the noise of a batch, for singular
# values down to the largest one divided by this condition number. Trained kernels have smaller ones, but the number of
# steps grows with the root of the condition number. Leaving out the small ones hardly changes the direction of most
# gradients (results/gradient.md).
GRADIENT_TOLERANCE = 1e-2
GRADIENT_CONDITION = 32.0


def polar(v: Tensor, *, tolerance: float = 1e-5, condition: float = 1e3) -> Tensor:
    """Polar factor of each matrix of `v`, shape (..., m, n), real or complex, float32 or float64.

    Singular values of the result are at most one up to rounding, whatever `v` is. A singular value of `v` that is at
    least the largest one divided by `condition` becomes at least `1 - tolerance`. A zero matrix gives zero. Multiplying
    `v` by a power of two does not change a bit of the result.

    The gradient is the exact polar factor's, except that singular values below the largest divided by `condition`
    count as that large. So it is finite everywhere, and the backward pass needs no intermediate iterate. On a GPU the
    equation for the gradient is solved to a relative error of `GRADIENT_TOLERANCE` for singular values above the
    largest divided by `GRADIENT_CONDITION`. Smaller ones contribute a reduced gradient that vanishes with them.
    """
    x = short_side_first(v)
    lower = sigma_min(x.shape[-2], condition)
    if not dispatch.products_are_cheap(v):
        w = polar_svd.polar(_divide(x, power_of_two(x)), lower)
    elif torch.is_grad_enabled() and v.requires_grad:
        w = _Polar.apply(x, lower, tolerance)
    else:
        w = _forward(x, lower, tolerance, wants_inverse=False)[0]
    return w if x is v else w.mH


@torch.no_grad()
def accurate_polar(v: Tensor) -> Tensor:
    """Polar factor to the full precision of `v`, without a gradient: slower than `polar`, for freezing.

    A matrix whose result is not orthonormal is singular to working precision; its result has singular values below one.
    """
    if not dispatch.products_are_cheap(v):
        x = short_side_first(v)
        w = polar_svd.accurate_polar(_divide(x, power_of_two(x)))
        return w if x is v else w.mH
    w = v
    # The allowed condition number grows only until the result is orthonormal: every further step adds rounding errors.
    for condition in (1e1, 1e3, 1e6, 1e12):
        w = polar(v, tolerance=1e-15, condition=condition)
        if deviation(w) < 500 * torch.finfo(w.dtype).eps:
            break
    return w


def short_side_first(v: Tensor) -> Tensor:
    """Return `V`, or `V*` if `V` has more rows than columns."""
    return v if v.shape[-2] <= v.shape[-1] else v.mH.resolve_conj()


def deviation(w: Tensor) -> float:
    """Largest `||W W* - I||_F / sqrt m` of a batch of m x n matrices, on the short side: zero when orthonormal."""
    w = short_side_first(w)
    m = w.shape[-2]
    gram = w @ w.mH - torch.eye(m, dtype=w.dtype, device=w.device)
    # An empty batch deviates by zero: images of 2 x 2 have no frequency with a conjugate.
    return float(torch.linalg.matrix_norm(gram).max()) / m**0.5 if gram.numel() else 0.0


def largest_singular_value(w: Tensor) -> float:
    """Upper bound of the largest singular value in a batch of real matrices.

    If all are nearly orthonormal, it is the root of `||W W^T||_2 <= 1 + ||W W^T - I||_F`. Otherwise, with `G = W W^T`,
    it is the root of `||G||_2 <= ||G^p||_F^(1/p)`, p = 2^15. That exceeds the singular value of m rows by a factor of
    at most `m^(1 / 2^17)`: 5.3e-5 too much for 1,000 rows. It needs matrix products only, which a GPU does faster than
    eigenvalues.
    """
    w = short_side_first(w).double()
    power = w @ w.mT
    excess = float(torch.linalg.matrix_norm(power - torch.eye(w.shape[-2], dtype=w.dtype, device=w.device)).max())
    if excess < 1e-3:
        return (1 + excess) ** 0.5
    log = torch.zeros((), dtype=w.dtype, device=w.device)  # log of the p-th root of the norm of the power so far
    for n in range(16):
        power = power @ power if n else power
        norm = torch.linalg.matrix_norm(power).clamp_min(torch.finfo(power.dtype).tiny)
        log = log + norm.log() / 2**n
        power = power / norm[..., None, None]
    return float((log / 2).exp().max())


def sigma_min(m: int, condition: float) -> float:
    """Smallest singular value that an m-row matrix of this condition number can have after `normalize`."""
    return m ** (-1 / 8) / condition


def max_condition(m: int, lower: float) -> float:
    """The condition number for which `sigma_min` is `lower`."""
    return m ** (-1 / 8) / lower


def gradient_sigma_min(m: int, lower: float) -> float:
    """Smallest scaled singular value for which a GPU solves the equation for the gradient; `lower` is W's."""
    return max(lower, sigma_min(m, GRADIENT_CONDITION))


def normalize(v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scale each m x n matrix so that its largest singular value lies in `[m^(-1/8), 1]`.

    Return `X = V / scale`, the scale, `X X*` and `(X X*)^2`. The bound needs both products, and so does `iterate`.
    """
    power = power_of_two(v)
    x, power = _divide(v, power), power[..., None, None]
    gram = x @ x.mH
    square = gram @ gram
    # ||(X X*)^2||_F^(1/4) is the l8 norm of the singular values: at least the largest one, at most m^(1/8) of it.
    norm = torch.linalg.matrix_norm(square).sqrt().sqrt()[..., None, None]
    norm = torch.where(norm > 0, norm, 1)
    return x / norm, power * norm, gram / norm**2, square / norm**4


def all_above(gram: Tensor, s: float) -> bool:
    """Whether all singular values of all `X` with `gram = X X*` are above s, up to rounding.

    That is so if `gram - s^2 I` has a Cholesky factor.
    """
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return not torch.linalg.cholesky_ex(gram - s * s * identity).info.any()


def power_of_two(v: Tensor) -> Tensor:  # (..., m, n) -> (...)
    """The power of two just below the largest real or imaginary part of each matrix, a constant; one for zero.

    Dividing by it is exact, and keeps squares and fourth powers from overflowing or vanishing.
    """
    parts = torch.view_as_real(v.detach()) if v.is_complex() else v.detach().unsqueeze(-1)
    largest = parts.abs().amax(dim=(-3, -2, -1)) if v.numel() else parts.new_zeros(v.shape[:-2])
    # largest = mantissa * 2^e with mantissa in [1/2, 1), so the quotient is exactly 2^(e-1).
    return torch.where(largest > 0, largest / (2 * torch.frexp(largest).mantissa), 1)


def _divide(v: Tensor, power: Tensor) -> Tensor:  # (..., m, n), (...) -> (..., m, n)
    """Divide each matrix by a power of two. (A complex divisor would be squared, which may underflow.)"""
    if not v.is_complex():
        return v / power[..., None, None]
    return torch.view_as_complex(torch.view_as_real(v) / power[..., None, None, None])


def iterate(
    x: Tensor, gram: Tensor, square: Tensor, polynomials: tuple[Polynomial, ...], wants_inverse: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Apply the polynomials to the singular values of `x`, given `gram = x x*` and `square = gram^2`.

    Return the result `W` and, if wanted, the matrix `Q` with `W = Q X`, which approximates the inverse of
    `(X X*)^(1/2)`: the product of the polynomials' even parts.
    """
    (a, b, c), inverse = polynomials[0], None
    even = b * gram + c * square
    if wants_inverse:
        inverse = even + a * torch.eye(gram.shape[-1], dtype=x.dtype, device=x.device)
    x = _addmm(x, even, x, a, 1.0)
    for a, b, c in polynomials[1:]:
        # The iteration works on X, not on the Gram matrix: that would square the condition number.
        gram = x @ x.mH
        even = _addmm(gram, gram, gram, b, c) if c else b * gram
        x = _addmm(x, even, x, a, 1.0)
        inverse = None if inverse is None else _addmm(inverse, inverse, even, a, 1.0)
    return x, inverse


def _addmm(z: Tensor, x: Tensor, y: Tensor, beta: float, alpha: float) -> Tensor:
    """`beta z + alpha x y` in one kernel."""
    flat = torch.baddbmm(
        z.reshape(-1, *z.shape[-2:]),
        x.reshape(-1, *x.shape[-2:]),
        y.reshape(-1, *y.shape[-2:]),
        beta=beta,
        alpha=alpha,
    )
    return flat.view(z.shape)


def _forward(v: Tensor, lower: float, tolerance: float, wants_inverse: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the polar factor, the scale of `normalize` and, if wanted, the inverse that `iterate` gives; m <= n."""
    with torch.autocast(v.device.type, enabled=False):
        x, scale, gram, square = normalize(v)
        w, inverse = iterate(x, gram, square, schedule(lower, tolerance), wants_inverse)
    return w, scale, inverse


class _Polar(torch.autograd.Function):
    """Forward by iteration, backward by the symmetric Jacobian; m <= n.

    `W` is the gradient of the nuclear norm of `V`, so its Jacobian is a Hessian: symmetric. The backward pass
    is thus the derivative of `W` in the direction of the incoming gradient `G`. With `H = V W*`, `M = G W*`:

        H S + S H = M - M*,        dV = S W + H^(-1) (G - M W).
    """

    @staticmethod
    def forward(ctx: Any, v: Tensor, lower: float, tolerance: float) -> Tensor:
        wants_inverse = ctx.needs_input_grad[0] and v.shape[-2] < v.shape[-1]
        w, scale, inverse = _forward(v, lower, tolerance, wants_inverse)
        ctx.save_for_backward(v, w, scale, inverse)
        ctx.lower = lower
        return w

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        v, w, scale, inverse = ctx.saved_tensors
        with torch.autocast(g.device.type, enabled=False):
            return pullback(v, w, scale, inverse, g, ctx.lower, use_products=True), None, None


def pullback(
    v: Tensor, w: Tensor, scale: Tensor, inverse: Tensor | None, g: Tensor, lower: float, use_products: bool
) -> Tensor:
    """The gradient with respect to `v`, from the gradient `g` with respect to `w`.

    `inverse` is `H^(-1)`: needed for `use_products` and m < n, computed here otherwise.
    """
    h = (v / scale) @ w.mH
    h = (h + h.mH) / 2
    m = g @ w.mH
    k = m - m.mH
    if use_products:
        s = sylvester.solve_by_products(h, k, gradient_sigma_min(v.shape[-2], lower), GRADIENT_TOLERANCE)
    else:
        s, inverse = sylvester.solve_by_eigh(h, k, lower)
    dv = s @ w
    if v.shape[-2] < v.shape[-1] and inverse is not None:
        dv = dv + inverse @ (g - m @ w)
    return dv / scale
