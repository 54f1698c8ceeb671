"""The polar factor and its derivative by singular value decompositions: fast on a CPU, and exact at any condition.

With `X = U diag(s) Y`, U unitary and Y with orthonormal rows, the polar factor is `U Y`. One decomposition serves both
directions. Inputs are batches of m x n matrices, m <= n, whose largest entry is near one.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Which matrices are decomposed by the eigenvectors of their Gram matrix G = X X*: those of which all eigenvalues exceed
# their mean, weighted by themselves, divided by this number. This only predicts what will be accurate enough.
_GRAM_LIMIT = 1024.0
_BLOCK = 64  # rows of a Hermitian product that are computed at a time


def _largest_error(dtype: torch.dtype) -> float:
    """How far W by the Gram matrix may be from orthonormal, `||W W* - I||_F`, before the cubic step. This is checked.

    Let e be this number. Squared singular values of W are then between 1 - e and 1 + e, up to the rounding of `W W*`:
    at most 4 m n eps, which is below one for float32 matrices of up to two million entries. The cubic step
    `s (3 - s^2) / 2` is at most one for all s^2 <= 4, so no singular value of the result exceeds one, but for the
    rounding of that step itself. And it is at least `1 - 3/8 e^2 (1 + e)`: here 1 - 25 eps, as e = 8 sqrt(eps).
    """
    return 8 * torch.finfo(dtype).eps ** 0.5


def polar(x: Tensor, lower: float) -> Tensor:
    """Differentiable polar factors. `lower` is as in `polar.sigma_min`: the gradient's smallest singular value.

    Singular values of `x` below `lower` times the l8 norm of all of them are divided by that number, not by themselves.
    So the result depends continuously on `x`, and zero gives zero.
    """
    return _Polar.apply(x, lower)


def accurate_polar(x: Tensor) -> Tensor:
    """Polar factors without a gradient. Only singular values as small as their own rounding errors stay below one."""
    noise = x.shape[-2] ** 0.5 * torch.finfo(x.dtype).eps
    flat = x.reshape(-1, *x.shape[-2:])
    return _decompose(flat, lambda s: noise * s.amax(dim=-1, keepdim=True), factors=False)[0].view(x.shape)


def _decompose(x: Tensor, floor: Callable[[Tensor], Tensor], factors: bool) -> tuple[Tensor, ...]:  # f m n
    """Return `W` and, if `factors` are wanted, `U`, s and `Y`. Singular values below `floor(s)` are raised to it.

    Each matrix is judged by itself, so a result does not depend on the other matrices of the batch.
    """
    gram = _gram(x)
    good = _seems_well_conditioned(gram)
    if not good.any():
        return _by_svd(x, floor)
    alone = bool(good.all())  # then there is nothing to copy
    parts, accurate = _by_gram(x, gram, factors) if alone else _by_gram(x[good], gram[good], factors)
    if alone and accurate.all():
        return parts
    good[good.clone()] = accurate
    mixed = tuple(part.new_empty(len(x), *part.shape[1:]) for part in parts)
    for whole, by_gram, by_svd in zip(mixed, parts, _by_svd(x[~good], floor), strict=False):
        whole[good], whole[~good] = by_gram[accurate], by_svd
    return mixed


def _gram(x: Tensor) -> Tensor:  # f m n -> f m m
    """`X X*`, which is Hermitian: only the blocks on and below the diagonal are computed."""
    m = x.shape[-2]
    if m <= _BLOCK:
        return x @ x.mH
    out = x.new_empty(len(x), m, m)
    for start in range(0, m, _BLOCK):
        end = min(start + _BLOCK, m)
        out[:, start:end, :end] = x[:, start:end] @ x[:, :end].mH
        out[:, :start, start:end] = out[:, start:end, :start].mH
    return out


def _seems_well_conditioned(gram: Tensor) -> Tensor:  # f m m -> f
    trace = gram.diagonal(dim1=1, dim2=2).real.sum(-1)
    limit = torch.linalg.matrix_norm(gram).square() / (_GRAM_LIMIT * trace)
    shifted = gram.clone()
    shifted.diagonal(dim1=1, dim2=2).sub_(limit[:, None])
    return torch.linalg.cholesky_ex(shifted).info == 0  # it has a factor if all eigenvalues of `gram` exceed the limit


def _by_gram(x: Tensor, gram: Tensor, factors: bool) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return what `_decompose` returns, and which of the matrices `W` are accurate."""
    values, u = torch.linalg.eigh(gram)
    s = values.sqrt()
    if factors:
        y = (u / s[..., None, :]).mH @ x
        w = u @ y
    else:
        w = _gram(u / s.sqrt()[..., None, :]) @ x  # U diag(1/s) U* X takes fewer operations than U Y
    excess = _gram(w)
    excess.diagonal(dim1=1, dim2=2).sub_(1)
    accurate = torch.linalg.matrix_norm(excess) <= _largest_error(x.dtype)  # false for NaN
    # One cubic step s (3 - s^2) / 2: values next to one become at most one. The errors of U leave `U diag(1/s) U*`
    # Hermitian, so they change the singular values of W and hardly turn it; the step removes them.
    w = torch.baddbmm(w, excess, w, alpha=-0.5)
    return (w, u, s, y) if factors else (w,), accurate


def _by_svd(x: Tensor, floor: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """LAPACK's decomposition, whose U and Y are orthonormal to working precision. NaN where `x` is not finite."""
    finite = x.isfinite().all(dim=-1).all(dim=-1)[:, None]
    u, s, y = torch.linalg.svd(torch.where(finite[..., None], x, 0), full_matrices=False)
    raised = torch.maximum(s, floor(s)).where(finite, torch.nan)
    share = (s / raised).where(raised != 0, 0)  # one, but for those that were raised
    return (u * share[..., None, :]) @ y, u, raised, y


class _Polar(torch.autograd.Function):
    """With `P = U* G Y*` for the gradient G, `dX = U (K Y + D (U* G - P Y))`: here `K = (P - P*) / (s_i + s_j)` and
    `D = diag(1 / s)`, and the second term is there only for rectangular matrices. This is the formula of
    `linalg.polar` in the basis of the singular vectors, where its equation is solved by a division.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, lower: float) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            w, u, s, y = _decompose(x.reshape(-1, *x.shape[-2:]), lambda s: lower * _norm(s), factors=True)
            ctx.save_for_backward(u, s, y)
            return w.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        u, s, y = ctx.saved_tensors
        with torch.autocast(g.device.type, enabled=False):
            rotated = u.mH @ g.reshape(y.shape)
            p = rotated @ y.mH
            k = (p - p.mH) / (s[..., :, None] + s[..., None, :])
            if y.shape[-2] == y.shape[-1]:
                return (u @ (k @ y)).view(g.shape), None
            inner = torch.baddbmm(rotated.div_(s[..., None]), k - p / s[..., None], y)
            return (u @ inner).view(g.shape), None


def _norm(s: Tensor) -> Tensor:
    """The l8 norm, which `polar.normalize` scales by; one for zeros."""
    norm = torch.linalg.vector_norm(s, 8, dim=-1, keepdim=True)
    return torch.where(norm > 0, norm, 1)
