"""The certificate of the literature: margins of computed logits over an assumed Lipschitz constant.

It is what papers print and what training watches. It proves nothing about floating point, nor about the layers'
true norms: `lotnet certify` does that.
"""

import math

import torch
from torch import Tensor, nn

from lotnet.layers import Normalize, NormalizedLinear
from lotnet.layers.linear import normalized_rows


def plain_radii(logits: Tensor, labels: Tensor, pairwise: Tensor, lipschitz: float) -> Tensor:
    """`min_j (z_y - z_j) / (pairwise_yj lipschitz)` over all other classes j, of shape b.  # b c, b, c c

    In pixels if `lipschitz` is `pixel_lipschitz(model)`. Negative where another class wins; zero where logits are
    not finite, so that a broken network is never certified.
    """
    margins = logits.gather(1, labels[:, None]) - logits
    radii = margins / (pairwise[labels] * lipschitz)
    # Two equal rows of the last layer: their logits differ by a constant, which no perturbation moves (x / 0 is
    # infinite with the right sign) unless it is zero (0 / 0, a tie, radius zero).
    radii = radii.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
    radii = radii.scatter(1, labels[:, None], math.inf).amin(dim=1)
    return torch.where(logits.isfinite().all(dim=1), radii, 0.0)


def pairwise_constants(head: nn.Module, classes: int, like: Tensor) -> Tensor:
    """Lipschitz constant of every difference of two logits as functions of the features, c c, zero on the diagonal.

    sqrt 2 for an orthogonal last layer; `||w_i - w_j||` for one with normalised rows, as a function of its weight.
    """
    if isinstance(head, NormalizedLinear):
        rows = normalized_rows(head.weight.to(like.dtype))
        # The mode that subtracts: the quick one loses half of the digits where rows are close.
        return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return math.sqrt(2) * (1 - torch.eye(classes, dtype=like.dtype, device=like.device))


def pixel_lipschitz(model: nn.Sequential) -> float:
    """Lipschitz constant, in pixels of [0, 1], of a model of 1-Lipschitz layers: that of its `Normalize`."""
    first = model[0]
    if not isinstance(first, Normalize):
        raise TypeError("the first module of a model is Normalize")
    return 1 / float(first.std.min())


def in_255ths(radius: float) -> str:
    """A radius as the literature writes it."""
    return f"{radius * 255:.6g}/255"
