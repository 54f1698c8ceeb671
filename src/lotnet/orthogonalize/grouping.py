"""Orthogonalisation of many layers at once, in batches of equal matrices on a GPU."""

from collections.abc import Sequence

import torch

from lotnet.layers import OrthogonalConv2d
from lotnet.linalg.polar import largest_singular_value as largest_of_matrices
from lotnet.operators import Operator
from lotnet.orthogonalize.schedules import in_batches, settings
from lotnet.parametrizations import LOT, Geometry
from lotnet.parametrizations.lot import operators

Wanted = Sequence[tuple[OrthogonalConv2d, Geometry]]


def joint_operators(layers: Wanted) -> list[Operator]:
    """The training operators of layers at these geometries. On a GPU, LOT layers are computed in batches.

    On a CPU, batches save no time, and each layer has the same bits whichever layers are computed with it.
    """
    made = {n: layer.free_operator(g) for n, (layer, g) in enumerate(layers) if not in_batches(layer)}
    rest = [n for n in range(len(layers)) if n not in made]
    batched = operators([with_settings(*layers[n]) for n in rest])
    made |= dict(zip(rest, batched, strict=True))
    return [made[n] for n in range(len(layers))]


def with_settings(layer: OrthogonalConv2d, geometry: Geometry) -> tuple[LOT, torch.Tensor, Geometry]:
    """What `parametrizations.lot` computes a layer's polar factors from."""
    return settings(layer, geometry), layer.free_weight(), geometry


@torch.no_grad()
def largest_singular_value(layers: Wanted) -> float:
    """Upper bound of the largest singular value of the current training operators, at the current precision."""
    known = (operator.norm_matrices() for operator in joint_operators(layers))
    values = [largest_of_matrices(m) for m in known if m is not None]
    return float(torch.tensor(values, dtype=torch.float64).max())  # Python's max might pass over a NaN
