"""The polar factor and its derivative on a GPU's tensor cores: the mathematics of `polar`, in half-precision planes.

The iterate is stored in half precision, and every product of two halves is exact in the accumulator. So the last step,
a correction of second order, starts from a matrix that is known exactly. Singular values of the result differ from one
by the error of the schedule and by float32's rounding, not by half precision's.

Inputs and outputs are real and imaginary parts, (f, 2, m, n), or (f, 1, m, n) for real matrices; m <= n. The planes in
between are described in `kernels.products`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lotnet.kernels.products import first_even, planes, skew_part, sum_of_products
from lotnet.linalg import sylvester
from lotnet.linalg.polar import GRADIENT_TOLERANCE, gradient_sigma_min
from lotnet.linalg.polynomials import Polynomial, schedule

_LARGEST = 2.0**15  # halves end at 65504


def polar(parts: Tensor, lower: float, tolerance: float, dtype: torch.dtype = torch.float16) -> Tensor:
    """Differentiable polar factors. `lower` is as in `polar.sigma_min`; the planes have the given `dtype`."""
    return _Polar.apply(parts, lower, tolerance, dtype)


class _Polar(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Tensor, lower: float, tolerance: float, dtype: torch.dtype) -> Tensor:
        wants_gradient = ctx.needs_input_grad[0]
        wants_inverse = wants_gradient and parts.shape[-2] < parts.shape[-1]
        x, w, size, largest, inverse = polar_factor(parts, schedule(lower, tolerance), wants_inverse, dtype)
        if wants_gradient:
            ctx.save_for_backward(x, planes(w, torch.ones_like(size), dtype), size, largest, inverse)
        ctx.lower = lower
        return w

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        x, w, size, largest, inverse = ctx.saved_tensors
        return pullback(x, w, size, largest, inverse, g, ctx.lower), None, None, None


def polar_factor(
    parts: Tensor, polynomials: tuple[Polynomial, ...], wants_inverse: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Polar factor `W` of each `V`, and what `pullback` needs.

    Return the planes of `X = V / size`, the parts of `W`, the size, an upper bound of the largest singular value of `X`
    and, if wanted, the planes of `H^(-1)`, for `H = (X X*)^(1/2)` divided by that upper bound.
    """
    size = _nonzero(torch.linalg.vector_norm(parts, dim=(1, 2, 3)))
    x = start = planes(parts, 1 / size, dtype)
    m = parts.shape[-2]
    # The squared singular values sum to one. Scaled by m, neither they nor their squares leave half precision's range.
    gram = sum_of_products([(x, x)], adjoint=True, alpha=float(m), mirror=1)
    square = sum_of_products([(gram, gram)], mirror=1, result=True)
    norm = _nonzero(torch.linalg.vector_norm(square, dim=(1, 2, 3)))
    largest = (norm.sqrt() / m).sqrt()  # the l8 norm of the singular values, as in `polar.normalize`
    (a, b, c), *quintics, (last_a, last_b, _) = polynomials
    even = first_even(gram, square, norm, b, c)
    inverse = _plus_identity(even, a) if wants_inverse else None
    x = sum_of_products([(even, x)], plus=[(a, x)], factor=1 / largest)
    for a, b, c in quintics:
        gram = sum_of_products([(x, x)], adjoint=True, mirror=1)
        even = sum_of_products([(gram, gram)], alpha=c, plus=[(b, gram)], mirror=1)
        x = sum_of_products([(even, x)], plus=[(a, x)])
        inverse = None if inverse is None else sum_of_products([(even, inverse)], plus=[(a, inverse)], mirror=1)
    # The last step is a correction, X + ((a - 1) I + b X X*) X: the bracket is small, and so is its rounding error.
    even = sum_of_products([(x, x)], adjoint=True, alpha=last_b, identity=last_a - 1, mirror=1)
    w = sum_of_products([(even, x)], plus=[(1.0, x)], result=True)
    inverse = None if inverse is None else sum_of_products([(even, inverse)], plus=[(1.0, inverse)], mirror=1)
    return start, w, size, largest, inverse


def pullback(
    x: Tensor, w: Tensor, size: Tensor, largest: Tensor, inverse: Tensor | None, g: Tensor, lower: float
) -> Tensor:
    """`polar.pullback` in planes. `S W + H^(-1) (G - M W)` is summed as `(S - H^(-1) M) W + H^(-1) G`."""
    # The inverse is at most 4.5 / lower (reached where V is singular), and S is smaller. G is scaled so that neither
    # S nor a product with the inverse leaves half precision's range.
    g_size = _nonzero(torch.linalg.vector_norm(g, dim=(1, 2, 3))) / min(32.0, _LARGEST * lower / 4.5)
    g = planes(g, 1 / g_size, x.dtype)
    h = sum_of_products([(x, w)], adjoint=True, factor=1 / largest, mirror=1)
    m = sum_of_products([(g, w)], adjoint=True)
    s = _chebyshev(h, skew_part(m), gradient_sigma_min(x.shape[-2], lower))
    factor = g_size / (size * largest)
    if inverse is None:
        return sum_of_products([(s, w)], factor=factor, result=True)
    s = sum_of_products([(inverse, m)], alpha=-1.0, plus=[(1.0, s)])
    return sum_of_products([(s, w), (inverse, g)], factor=factor, result=True)


def _chebyshev(h: Tensor, k: Tensor, lower: float) -> Tensor:
    """`sylvester.solve_by_products`, one kernel per step. The first iterate, a multiple of `K`, is not stored."""
    on_s, steps = sylvester.chebyshev_steps(lower, GRADIENT_TOLERANCE)
    s, before = k, None
    for momentum, gain in steps:
        # (1 + momentum) S - momentum B + gain (K - H S - S H), S being on_s times what is stored
        added = [((1 + momentum) * on_s + (gain if before is None else 0.0), s)]
        if before is not None:
            added += [(-momentum * before[0], before[1]), (gain, k)]
        following = sum_of_products([(h, s), (s, h)], alpha=-gain * on_s, plus=added, mirror=-1)
        before, s, on_s = (on_s, s), following, 1.0
    return s


def _nonzero(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 1)


def _plus_identity(p: Tensor, a: float) -> Tensor:
    out = p.clone()
    out[:, 0].diagonal(dim1=-2, dim2=-1).add_(a)
    return out
