"""The polar factor `W = (V V*)^(-1/2) V` of a batch of matrices, and its derivative.

`W` is the nearest matrix to `V` with orthonormal rows (or columns, whichever are fewer): with `V = P S Q*`,
`W = P Q*`. Only matrix products are used going forward, so it runs at the speed of the hardware in any precision.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lotnet.kernels import dispatch
from lotnet.linalg import sylvester
from lotnet.linalg.polynomials import Polynomial, schedule

# On a GPU the gradient's equation is solved to this tolerance, far below the noise of a batch, for singular values down
# to one in this many of the largest. Trained kernels have smaller ones, and the steps for all of them grow with the
# root of the condition number; what is left out hardly turns most gradients (results/gradient.md).
GRADIENT_TOLERANCE = 1e-2
GRADIENT_CONDITION = 32.0


def polar(v: Tensor, *, tolerance: float = 1e-5, condition: float = 1e3) -> Tensor:
    """Polar factor of each matrix of `v`, shape (..., m, n), real or complex, float32 or float64.

    Singular values of the result are at most one up to rounding, whatever `v` is; they are at least
    `1 - tolerance` where the largest singular value of `v` is at most `condition` times that one. A zero matrix
    gives zero. Multiplying `v` by a power of two does not change a bit of the result.

    The gradient is that of the exact polar factor, with singular values below `1/condition` of the largest
    treated as if they were that large: it is finite everywhere, and needs no intermediate iterate. On a GPU that is
    true to a hundredth for singular values above `1/GRADIENT_CONDITION`; of what it owes to others it has a share,
    which falls from all to nothing with them.
    """
    x = short_side_first(v)
    lower = sigma_min(x.shape[-2], condition)
    if torch.is_grad_enabled() and v.requires_grad:
        w = _Polar.apply(x, lower, tolerance)
    else:  # plain operations, so that a layer in `eval()` may be given to `torch.func`
        w = _forward(x, lower, tolerance, wants_inverse=False)[0]
    return w if x is v else w.mH


@torch.no_grad()
def accurate_polar(v: Tensor) -> Tensor:
    """Polar factor to the precision of `v`, when time matters less; for freezing, so without a gradient.

    The condition number allowed for grows until the result is orthonormal, since each step more adds its roundings.
    What is still not then is singular to working precision, and stays below one there.
    """
    w = v
    for condition in (1e1, 1e3, 1e6, 1e12):
        w = polar(v, tolerance=1e-15, condition=condition)
        if deviation(w) < 500 * torch.finfo(w.dtype).eps:
            break
    return w


def short_side_first(v: Tensor) -> Tensor:
    """`V`, or `V*` where it has more rows than columns."""
    return v if v.shape[-2] <= v.shape[-1] else v.mH.resolve_conj()


def deviation(w: Tensor) -> float:
    """Largest `||W W* - I||_F / sqrt m` of a batch of m x n matrices, on the short side: zero when orthonormal."""
    w = short_side_first(w)
    m = w.shape[-2]
    gram = w @ w.mH - torch.eye(m, dtype=w.dtype, device=w.device)
    # No matrix at all deviates by nothing: images of 2 x 2 have no frequency with a conjugate.
    return float(torch.linalg.matrix_norm(gram).max()) / m**0.5 if gram.numel() else 0.0


def largest_singular_value(w: Tensor) -> float:
    """Of a batch of real matrices, from above. Where all are nearly orthonormal, `||W W^T||_2 <= 1 + ||W W^T - I||_F`.
    Else `||G||_2 <= ||G^p||_F^(1/p)` with p = 2^15, for m rows at most `m^(1 / 2^17)` times too much, 5.3e-5 for 1,000:
    products alone, which a GPU does better than eigenvalues."""
    w = short_side_first(w).double()
    power = w @ w.mT
    excess = float(torch.linalg.matrix_norm(power - torch.eye(w.shape[-2], dtype=w.dtype, device=w.device)).max())
    if excess < 1e-3:
        return (1 + excess) ** 0.5
    log = torch.zeros((), dtype=w.dtype, device=w.device)  # of the norm of the power taken so far, its p-th root
    for n in range(16):
        power = power @ power if n else power
        norm = torch.linalg.matrix_norm(power).clamp_min(torch.finfo(power.dtype).tiny)
        log = log + norm.log() / 2**n
        power = power / norm[..., None, None]
    return float((log / 2).exp().max())


def sigma_min(m: int, condition: float) -> float:
    """Smallest scaled singular value of an m-row matrix of that condition number: see `normalize`."""
    return m ** (-1 / 8) / condition


def condition_allowed(m: int, lower: float) -> float:
    """The inverse of `sigma_min`."""
    return m ** (-1 / 8) / lower


def gradient_end(m: int, lower: float) -> float:
    """The smallest scaled singular value that the gradient's equation is solved for on a GPU, where W has `lower`."""
    return max(lower, sigma_min(m, GRADIENT_CONDITION))


def normalize(v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scale each m x n matrix so that its largest singular value lies in `[m^(-1/8), 1]`.

    Returns `X = V / scale`, the scale, `X X*` and `(X X*)^2`; the products are by-products of the bound.
    """
    power = power_of_two(v)[..., None, None]
    x = v / power
    gram = x @ x.mH
    square = gram @ gram
    # ||(X X*)^2||_F^(1/4) is the l8 norm of the singular values: at least the largest one, at most m^(1/8) of it.
    norm = torch.linalg.matrix_norm(square).sqrt().sqrt()[..., None, None]
    norm = torch.where(norm > 0, norm, 1)
    return x / norm, power * norm, gram / norm**2, square / norm**4


def smallest_singular_value(gram: Tensor) -> float:
    """A lower bound of the smallest singular value of all `X` with `gram = X X*`: 0.3, 0.06, 0.01 or zero.

    Most kernels in training are far from the condition number that a schedule has to allow for, and a shorter one is
    faster and has fewer roundings. The few units of round-off by which this may be wrong are within a schedule's
    cushion.
    """
    if all_above(gram, 0.06):
        return 0.3 if all_above(gram, 0.3) else 0.06
    return 0.01 if all_above(gram, 0.01) else 0.0


def all_above(gram: Tensor, s: float) -> bool:
    """Whether all singular values of all `X` with `gram = X X*` are above s, up to rounding: whether `G - s^2 I` has a
    Cholesky factor."""
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


def iterate(
    x: Tensor, gram: Tensor, square: Tensor, polynomials: tuple[Polynomial, ...], wants_inverse: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Apply the polynomials to the singular values of `x`; `gram = x x*` and `square = gram^2` start it off.

    The polynomials' even parts multiply up to the `Q` with `W = Q X`, which tends to the inverse of `(X X*)^(1/2)`.
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
    """The polar factor, the scale of `normalize`, and where asked for the inverse that `iterate` gives; m <= n."""
    with torch.autocast(v.device.type, enabled=False):
        x, scale, gram, square = normalize(v)
        # Looking at numbers makes a GPU wait; there the caller chooses the condition number.
        start = lower if dispatch.reading_stalls(v) else max(lower, smallest_singular_value(gram))
        w, inverse = iterate(x, gram, square, schedule(start, tolerance), wants_inverse)
    return w, scale, inverse


class _Polar(torch.autograd.Function):
    """Forward by iteration, backward by the symmetric Jacobian; m <= n.

    `W` is the gradient of the nuclear norm of `V`, so its Jacobian is a Hessian: symmetric. The backward pass
    is thus the derivative of `W` in the direction of the incoming gradient `G`. With `H = V W*`, `M = G W*`:

        H S + S H = M - M*,        dV = S W + H^(-1) (G - M W).
    """

    @staticmethod
    def forward(ctx: Any, v: Tensor, lower: float, tolerance: float) -> Tensor:
        by_products = dispatch.products_are_cheap(v)
        wants_inverse = by_products and ctx.needs_input_grad[0] and v.shape[-2] < v.shape[-1]
        w, scale, inverse = _forward(v, lower, tolerance, wants_inverse)
        ctx.save_for_backward(v, w, scale, inverse)
        ctx.lower, ctx.by_products = lower, by_products
        return w

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        v, w, scale, inverse = ctx.saved_tensors
        with torch.autocast(g.device.type, enabled=False):
            return pullback(v, w, scale, inverse, g, ctx.lower, ctx.by_products), None, None


def pullback(
    v: Tensor, w: Tensor, scale: Tensor, inverse: Tensor | None, g: Tensor, lower: float, by_products: bool
) -> Tensor:
    """The gradient with respect to `v` from the one with respect to `w`; `inverse` is `H^(-1)` where that is needed."""
    h = (v / scale) @ w.mH
    h = (h + h.mH) / 2
    m = g @ w.mH
    k = m - m.mH
    if by_products:
        s = sylvester.by_products(h, k, gradient_end(v.shape[-2], lower), GRADIENT_TOLERANCE)
    else:
        s, inverse = sylvester.by_eigenvectors(h, k, lower)
    dv = s @ w
    if v.shape[-2] < v.shape[-1] and inverse is not None:
        dv = dv + inverse @ (g - m @ w)
    return dv / scale
