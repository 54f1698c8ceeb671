"""How many steps the polar factors of each layer need on a GPU, from measured singular values.

A schedule of polynomials is fitted to singular values from a lower end to one, and so are the steps that solve for the
gradient. With a lower end of 0.3 there are three polynomials and five steps; with 0.03, five and sixteen. `measure`
finds the lower ends. They only fall: kernels become ill-conditioned in training, and every change requires a recorded
step to be recorded again. Singular values below a lower end stay below one, by the invariant of a schedule
(`linalg.polynomials`), and contribute a reduced gradient (`linalg.polar`).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lotnet.kernels import dispatch
from lotnet.layers import OrthogonalConv2d
from lotnet.linalg.polar import all_above, max_condition, normalize, short_side_first, sigma_min
from lotnet.linalg.polynomials import min_sigma_for_length
from lotnet.parametrizations import LOT, Geometry
from lotnet.parametrizations.lot import matrices

Layers = Sequence[tuple[OrthogonalConv2d, Geometry]]

_TOLERANCE = 1e-4  # smallest tolerance of a schedule: below it, rounding errors dominate
_LONGEST = 8  # polynomials in a schedule; longer ones need inverses beyond the range of half precision
_MARGIN = 1.25  # factor by which the smallest singular value may shrink until it is measured again
_NEW_MARGIN = 1.45  # larger, so that not every measurement finds a kernel that needs a new lower end
_HIGHEST = 0.3  # a lower end above it would save no polynomial

_lower_ends: WeakKeyDictionary[OrthogonalConv2d, float] = WeakKeyDictionary()


def is_lot(layer: OrthogonalConv2d) -> bool:
    """Whether the layer's operator consists of polar factors."""
    return isinstance(layer.parametrization, LOT)


def in_batches(layer: OrthogonalConv2d) -> bool:
    """Whether the layer is computed together with others, by a schedule."""
    return is_lot(layer) and dispatch.products_are_cheap(layer.weight)


def settings(layer: OrthogonalConv2d, geometry: Geometry) -> LOT:
    """The layer's settings, with no more steps than its kernel needed when it was measured."""
    lot = layer.parametrization
    assert isinstance(lot, LOT)
    if layer not in _lower_ends or not dispatch.products_are_cheap(layer.weight):
        return lot
    condition = max_condition(_rows(geometry), _lower_ends[layer])
    return replace(lot, condition=min(condition, lot.condition), tolerance=max(_TOLERANCE, lot.tolerance))


@torch.no_grad()
def measure(layers: Layers) -> bool:
    """Lower the ends that are too high for the current kernels, with a margin; return whether any changed.

    Layers of the same shape have one lower end, so that they stay in one batch. None is below what the condition number
    of their settings and the longest schedule allow.
    """
    changed = False
    for members in _alike(layers):
        lower = min(_lower_ends.get(layer, _HIGHEST) for layer, _ in members)
        last = min(_last(*member) for member in members)
        for gram in _grams(members):
            if lower > last and not all_above(gram, _MARGIN * lower):
                lower = max(last, _smallest(gram, last, lower * _NEW_MARGIN) / _NEW_MARGIN)
        changed |= any(_lower_ends.get(layer) != lower for layer, _ in members)
        _lower_ends.update({layer: lower for layer, _ in members})
    return changed


def _smallest(gram: Tensor, low: float, high: float) -> float:
    """A lower bound of the smallest singular value, within 1 %; between `low` and `high`."""
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if all_above(gram, middle) else (low, middle)
    return low


def lower_ends(layers: Layers) -> Tensor:
    """The lower end of each layer, to be stored; zero where nothing was measured."""
    return torch.tensor([_lower_ends.get(layer, 0.0) for layer, _ in layers], dtype=torch.float64)


def restore(layers: Layers, stored: Tensor) -> None:
    """Set what `lower_ends` returned."""
    for (layer, _), lower in zip(layers, stored.tolist(), strict=True):
        if lower:
            _lower_ends[layer] = lower


def restore_lengths(layers: Layers, lengths: Tensor) -> None:
    """Set the numbers of polynomials that checkpoints of version 0.1.0 stored, one for each group of equal shapes."""
    for members, length in zip(_alike(layers), lengths.tolist(), strict=True):
        if length:
            _lower_ends.update({layer: min_sigma_for_length(length, _tolerance(layer)) for layer, _ in members})


def _alike(layers: Layers) -> list[list[tuple[OrthogonalConv2d, Geometry]]]:
    groups: dict[object, list[tuple[OrthogonalConv2d, Geometry]]] = defaultdict(list)
    for layer, geometry in layers:
        groups[geometry.out_channels, geometry.in_channels, geometry.kernel_size].append((layer, geometry))
    return list(groups.values())


def _last(layer: OrthogonalConv2d, geometry: Geometry) -> float:
    """The lower end that no schedule of the layer goes below."""
    assert isinstance(layer.parametrization, LOT)
    allowed = sigma_min(_rows(geometry), layer.parametrization.condition)
    return max(allowed, min_sigma_for_length(_LONGEST, _tolerance(layer)))


def _tolerance(layer: OrthogonalConv2d) -> float:
    assert isinstance(layer.parametrization, LOT)
    return max(_TOLERANCE, layer.parametrization.tolerance)


def _grams(members: Layers) -> Iterator[Tensor]:
    """`X X*` of all scaled transfer matrices, in double precision."""
    for layer, geometry in members:
        for v in matrices(layer.weight, geometry):
            yield normalize(short_side_first(v).to(torch.complex128 if v.is_complex() else torch.float64))[2]


def _rows(geometry: Geometry) -> int:
    return min(geometry.out_channels, geometry.in_channels)
