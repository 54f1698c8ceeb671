"""The paper's Newton iteration and its error bound, for analysis. Layers use `lotnet.linalg.polar` instead."""

from collections.abc import Iterator

import torch
from torch import Tensor

from lotnet.errors import InputError


def newton_iterates(v: Tensor, steps: int) -> Iterator[Tensor]:
    """`Z_k V` for k = 0, 1, ..., steps: coupled Newton iteration for `(V V*)^(-1/2) V`, with the paper's rescaling.

    Y <- Y (3I - ZY) / 2,  Z <- (3I - ZY) Z / 2,  from Y = V V*, Z = I, with V divided by ||V V*||_F^(1/2).
    """
    v = _rescaled(v)
    eye = torch.eye(v.shape[-2], dtype=v.dtype, device=v.device)
    y, z = v @ v.mH, eye.expand(*v.shape[:-2], -1, -1)
    yield z @ v
    for _ in range(steps):
        t = (3 * eye - z @ y) / 2
        y, z = y @ t, t @ z
        yield z @ v


def newton_error_bound(v: Tensor, steps: int) -> Tensor:
    """The paper's bound of `||Z_k V||_2` after `steps` steps (the theorem on error control in its appendix).

    With `rho = ||I - V V*||_2 < 1` for the rescaled V, the bound is `1 + cond(V) (1 - sqrt(1 - rho^(2^k)))`. It is
    infinite where V does not have full row rank, because the theorem does not apply there.
    """
    v = _rescaled(v)
    singular = torch.linalg.svdvals(v)[..., : v.shape[-2]]
    if v.shape[-2] > v.shape[-1]:
        return torch.full_like(singular[..., 0], torch.inf)
    largest, smallest = singular[..., 0], singular[..., -1]
    rho = torch.maximum((1 - smallest**2).abs(), (1 - largest**2).abs())
    bound = 1 + largest / smallest * (1 - (1 - rho ** (2.0**steps)).clamp_min(0).sqrt())
    return torch.where(smallest > 0, bound, torch.inf)


def _rescaled(v: Tensor) -> Tensor:
    """`V / ||V V*||_F^(1/2)`, whose largest singular value is at most one."""
    square = torch.linalg.matrix_norm(v @ v.mH, keepdim=True)
    if not bool((square.isfinite() & (square > 0)).all()):
        raise InputError(
            "a matrix is zero, not finite, or too small or large to be squared, so Newton's iteration cannot rescale "
            "it: use another kernel"
        )
    return v / square.sqrt()
