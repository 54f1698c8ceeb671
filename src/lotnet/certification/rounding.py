"""Rounding errors of a whole model, composed from what each frozen module proves of itself."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lotnet.errors import InputError
from lotnet.frozen.base import largest_error
from lotnet.frozen.model import FrozenModel, largest_input_norm
from lotnet.frozen.pointwise import FrozenLinear
from lotnet.linalg.bounds import norm_bound
from lotnet.linalg.roundoff import Upper, gamma, unit_roundoff

_SLACK = 1 + 2.0**-40  # covers the few float64 roundings of the tensor formulas below, each relative


@dataclass(frozen=True)
class Bounds:
    """All that a certificate needs to know of a model besides its logits. Every number is an upper bound."""

    lipschitz: float
    """Of the features, in pixels: everything before the last layer."""
    pairs: Tensor  # c c
    """`||w_i - w_j||` of the last layer's rows."""
    feature_error: float
    """`||h~ - h||`: computed against real features, for every input within `reach` of an image."""
    logit_error: Tensor  # c
    """Rounding of each logit, given the computed features."""
    reach: float
    """No radius beyond this is claimed: the error bounds hold for inputs of at most twice the largest image's norm."""


def bounds(model: FrozenModel) -> Bounds:
    """Bounds of the float64 graph of a frozen model."""
    if model.precision != torch.float64:
        raise InputError("certificates are about the float64 graph: pass model.astype(torch.float64)")
    stages = list(model)
    if not stages or not isinstance(stages[-1], FrozenLinear):
        raise InputError("a certified model ends in OrthogonalLinear or NormalizedLinear: make that its last layer")
    features, head = FrozenModel(model.precision, model.settings, {}, *stages[:-1]), stages[-1]
    reach = largest_input_norm(model.input_shape)
    norm = Upper(reach) * 2
    error = features.rounding_bound(0.0, norm)
    read = features.output_norm(norm) + error
    rows = norm_bound(head.weight, dim=1)
    growth = float(gamma(head.weight.shape[1] + 1, unit_roundoff(torch.float64)))
    # As rounding_error, for each logit by itself: K products and a bias in any order; the last term is underflow.
    logit_error = growth * ((rows * float(read) + head.bias.abs()) * _SLACK) + 1e-290
    logit_error = torch.where(logit_error < largest_error(torch.float64), logit_error, torch.inf)
    differences = head.weight[:, None, :] - head.weight[None, :, :]
    pairs = norm_bound(differences, dim=2) * _SLACK
    return Bounds(float(features.lipschitz_bound()), pairs, float(error), logit_error * _SLACK, reach)
