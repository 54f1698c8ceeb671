"""Rounding errors of a whole model, composed from the proved bounds of its modules."""

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
    """Everything besides the logits that a certificate needs from a model. Every number is an upper bound."""

    lipschitz: float
    """Lipschitz bound of the features (all layers before the last one), in pixels."""
    pairs: Tensor  # c c
    """`||w_i - w_j||` of the last layer's rows."""
    feature_error: float
    """`||h~ - h||` of computed and real features, for every input within `max_radius` of an image."""
    logit_error: Tensor  # c
    """Rounding error of each logit, given the computed features."""
    max_radius: float
    """Radii are capped here: the error bounds hold for inputs of up to twice the largest norm of an image."""


def bounds(model: FrozenModel) -> Bounds:
    """Prove the bounds of the float64 program of a frozen model."""
    if model.precision != torch.float64:
        raise InputError("certificates are about the float64 program: pass model.astype(torch.float64)")
    stages = list(model)
    if not stages or not isinstance(stages[-1], FrozenLinear):
        raise InputError("a certified model ends in OrthogonalLinear or NormalizedLinear: make that its last layer")
    features, head = FrozenModel(model.precision, model.settings, {}, *stages[:-1]), stages[-1]
    max_radius = largest_input_norm(model.input_shape)
    norm = Upper(max_radius) * 2
    error = features.rounding_bound(0.0, norm)
    read = features.output_norm(norm) + error
    rows = norm_bound(head.weight, dim=1)
    growth = float(gamma(head.weight.shape[1] + 1, unit_roundoff(torch.float64)))
    # `rounding_error` for each logit by itself: K products and a bias in any order. The last term covers underflow.
    logit_error = growth * ((rows * float(read) + head.bias.abs()) * _SLACK) + 1e-290
    logit_error = torch.where(logit_error < largest_error(torch.float64), logit_error, torch.inf)
    differences = head.weight[:, None, :] - head.weight[None, :, :]
    pairs = norm_bound(differences, dim=2) * _SLACK
    return Bounds(float(features.lipschitz_bound()), pairs, float(error), logit_error * _SLACK, max_radius)
