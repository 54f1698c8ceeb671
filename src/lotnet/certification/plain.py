"""The standard certificate, as papers compute it: margins of computed logits over an assumed Lipschitz constant.

Papers report it, and training monitors it. It proves nothing about floating point, nor about the layers' true norms:
`lotnet certify` does.
"""

import math

import torch
from torch import Tensor, nn

from lotnet.layers import Normalize, NormalizedLinear
from lotnet.layers.linear import normalized_rows

RADII = (36 / 255, 72 / 255, 108 / 255)
"""The l2 radii at which papers report certified accuracy."""


def plain_radii(logits: Tensor, labels: Tensor, pairwise: Tensor, lipschitz: float) -> Tensor:
    """Standard radii `min_j (z_y - z_j) / (pairwise_yj lipschitz)` over all other classes j.  b c, b, c c -> b

    They are in pixels if `lipschitz` is `pixel_lipschitz(model)`. A radius is negative if another class wins, and zero
    if logits are not finite, so that a broken network is never certified.
    """
    margins = logits.gather(1, labels[:, None]) - logits
    radii = margins / (pairwise[labels] * lipschitz)
    # The logits of two equal rows of the last layer differ by a constant, which no perturbation changes: x / 0 is
    # infinite with the correct sign. If the constant is zero (0 / 0), the classes tie and the radius is zero.
    radii = radii.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
    radii = radii.scatter(1, labels[:, None], math.inf).amin(dim=1)
    return torch.where(logits.isfinite().all(dim=1), radii, 0.0)


def pairwise_constants(head: nn.Module, classes: int, like: Tensor) -> Tensor:
    """Lipschitz constant of every difference of two logits with respect to the features, c c, zero on the diagonal.

    It is sqrt 2 for an orthogonal last layer, and `||w_i - w_j||`, differentiable in the weight, for normalised rows.
    """
    if isinstance(head, NormalizedLinear):
        rows = normalized_rows(head.weight.to(like.dtype))
        # This mode subtracts the rows. The faster one, by a matrix product, loses half of the digits for close rows.
        return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return math.sqrt(2) * (1 - torch.eye(classes, dtype=like.dtype, device=like.device))


def pixel_lipschitz(model: nn.Sequential) -> float:
    """Lipschitz constant of the `Normalize` of a model, hence of all its 1-Lipschitz layers, in pixels of [0, 1]."""
    first = model[0]
    if not isinstance(first, Normalize):
        raise TypeError("the first module of a model is Normalize")
    return 1 / float(first.std.min())


def in_255ths(radius: float) -> str:
    """A radius as papers write it, such as 36/255."""
    return f"{radius * 255:.6g}/255"
