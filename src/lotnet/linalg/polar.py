"""The polar factor `W = (V V*)^(-1/2) V` of a batch of matrices, and its derivative.

`W` is the nearest matrix to `V` with orthonormal rows (or columns, whichever are fewer): with `V = P S Q*`,
`W = P Q*`. Only matrix products are used going forward, so it runs at the speed of the hardware in any precision.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lotnet.linalg.polynomials import Polynomial, schedule


def polar(v: Tensor, *, tolerance: float = 1e-5, condition: float = 1e3) -> Tensor:
    """Polar factor of each matrix of `v`, shape (..., m, n), real or complex, float32 or float64.

    Singular values of the result are at most one up to rounding, whatever `v` is; they are at least
    `1 - tolerance` where the largest singular value of `v` is at most `condition` times that one. A zero matrix
    gives zero. Multiplying `v` by a power of two does not change a bit of the result.

    The gradient is that of the exact polar factor, with singular values below `1/condition` of the largest
    treated as if they were that large: it is finite everywhere, and needs no intermediate iterate.
    """
    m, n = v.shape[-2:]
    short_side_first = v if m <= n else v.mH.resolve_conj()
    w = _Polar.apply(short_side_first, lower_end(min(m, n), condition), tolerance)
    return w if m <= n else w.mH


@torch.no_grad()
def accurate_polar(v: Tensor) -> Tensor:
    """Polar factor to the precision of `v`, float64, when time matters less: the condition number allowed for grows until the
    result is orthonormal. What is still not then is singular to working precision, and stays below one there."""
    w = v
    for condition in (1e3, 1e6, 1e12):
        w = polar(v, tolerance=1e-15, condition=condition)
        if deviation(w) < 1e-13:
            break
    return w


def deviation(w: Tensor) -> float:
    """Largest `||W W* - I||_F / sqrt m` of a batch of m x n matrices, on the short side: zero when orthonormal."""
    w = w if w.shape[-2] <= w.shape[-1] else w.mH
    m = w.shape[-2]
    gram = w @ w.mH - torch.eye(m, dtype=w.dtype, device=w.device)
    return float(torch.linalg.matrix_norm(gram).max()) / m**0.5


def lower_end(m: int, condition: float) -> float:
    """Smallest scaled singular value of an m-row matrix of that condition number: see `normalize`."""
    return m ** (-1 / 8) / condition


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


def power_of_two(v: Tensor) -> Tensor:  # (..., m, n) -> (...)
    """The power of two just below the largest real or imaginary part of each matrix, a constant; one for zero.

    Dividing by it is exact, and keeps squares and fourth powers from overflowing or vanishing.
    """
    parts = torch.view_as_real(v.detach()) if v.is_complex() else v.detach().unsqueeze(-1)
    largest = parts.abs().amax(dim=(-3, -2, -1)) if v.numel() else parts.new_zeros(v.shape[:-2])
    # largest = mantissa * 2^e with mantissa in [1/2, 1), so the quotient is exactly 2^(e-1).
    return torch.where(largest > 0, largest / (2 * torch.frexp(largest).mantissa), 1)


def iterate(x: Tensor, gram: Tensor, square: Tensor, polynomials: tuple[Polynomial, ...]) -> Tensor:
    """Apply the polynomials to the singular values of `x`; `gram = x x*` and `square = gram^2` start it off."""
    a, b, c = polynomials[0]
    x = _addmm(x, b * gram + c * square, x, a, 1.0)
    for a, b, c in polynomials[1:]:
        gram = x @ x.mH
        # The iteration works on X, not on the Gram matrix: that would square the condition number.
        x = _addmm(x, _addmm(gram, gram, gram, b, c), x, a, 1.0) if c else _addmm(x, gram, x, a, b)
    return x


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


class _Polar(torch.autograd.Function):
    """Forward by iteration, backward by the symmetric Jacobian; m <= n.

    `W` is the gradient of the nuclear norm of `V`, so its Jacobian is a Hessian: symmetric. The backward pass
    is thus the derivative of `W` in the direction of the incoming gradient `G`. With `H = V W*`, `M = G W*`:

        H S + S H = M - M*,        dV = S W + H^(-1) (G - M W).
    """

    @staticmethod
    def forward(ctx: Any, v: Tensor, lower: float, tolerance: float) -> Tensor:
        with torch.autocast(v.device.type, enabled=False):
            x, scale, gram, square = normalize(v)
            w = iterate(x, gram, square, schedule(lower, tolerance))
        ctx.save_for_backward(v, w, scale)
        ctx.lower, ctx.tolerance = lower, tolerance
        return w

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        v, w, scale = ctx.saved_tensors
        with torch.autocast(v.device.type, enabled=False):
            h = _hermitian_part((v / scale) @ w.mH)
            m = g @ w.mH
            residual = g - m @ w if v.shape[-2] < v.shape[-1] else None
            k = m - m.mH
            if v.is_cuda:  # products are cheap there and eigenvectors dear; on a CPU it is the other way round
                s, lifted = sylvester_by_sign(h, k, residual, schedule(ctx.lower, ctx.tolerance))
            else:
                s, lifted = sylvester_by_eigenvectors(h, k, residual, ctx.lower)
            dv = s @ w
            if lifted is not None:
                dv = dv + lifted
        return dv / scale, None, None


def _hermitian_part(h: Tensor) -> Tensor:
    return (h + h.mH) / 2


def sylvester_by_eigenvectors(
    h: Tensor, k: Tensor, residual: Tensor | None, lower: float
) -> tuple[Tensor, Tensor | None]:
    """`S` with `H S + S H = K`, and `H^(-1) residual`; eigenvalues of `H` count as at least `lower`."""
    values, vectors = torch.linalg.eigh(h)
    values = values.clamp_min(lower)
    rotated = vectors.mH @ k @ vectors
    s = vectors @ (rotated / (values[..., :, None] + values[..., None, :])) @ vectors.mH
    if residual is None:
        return s, None
    return s, vectors @ ((vectors.mH @ residual) / values[..., None])


def sylvester_by_sign(
    h: Tensor, k: Tensor, residual: Tensor | None, polynomials: tuple[Polynomial, ...]
) -> tuple[Tensor, Tensor | None]:
    """The same by products alone: the forward polynomials applied to `[[H, K], [0, -H]]`.

    Its sign function carries `2S` in the corner, and the product of the even parts `q = a + b A + c A^2` tends
    to `H^(-1)`. Hermitian `H` and skew `K` halve the work: each product below stands for itself and its adjoint.
    """
    eye = torch.eye(h.shape[-1], dtype=h.dtype, device=h.device)
    inverse = eye
    for step, (a, b, c) in enumerate(polynomials):
        square = h @ h
        d = h @ k
        d = d + d.mH
        q, e = b * square, b * d
        if c:
            q = _addmm(q, square, square, 1.0, c)
            ad = square @ d
            e = e + c * (ad + ad.mH)
        q = q + a * eye
        k = _addmm(h @ e, k, q, 1.0, 1.0)
        if residual is not None:
            inverse = inverse @ q if step else q
        if step + 1 < len(polynomials):
            h = _hermitian_part(h @ q)
    return k / 2, None if residual is None else inverse @ residual
