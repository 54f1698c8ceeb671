"""Orthogonalisation of all LOT layers together, with no more steps than their kernels need."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from lotnet.layers import OrthogonalConv2d
from lotnet.linalg.polar import (
    all_above,
    condition_allowed,
    largest_singular_value,
    normalize,
    short_side_first,
)
from lotnet.linalg.polynomials import min_sigma_for_length
from lotnet.orthogonalize.sharing import layer_geometries
from lotnet.parametrizations import LOT, Geometry
from lotnet.parametrizations.lot import matrices, operators

_SHORTEST, _LONGEST = 4, 8  # of schedules, in polynomials; more need inverses beyond the range of half precision
_MARGIN = 1.5  # by which the smallest singular value may shrink until it is measured again
_TOLERANCE = 1e-4  # of the schedules: below that rounding, and next to it, decides


class GroupedOrthogonalization:
    """`prepare()` before each step gives every LOT layer of `model` its operator; `refresh()` now and then.

    Layers alike share the length of their schedules, so that they stay in one group. Lengths only grow: kernels wear
    while they are trained, and a change means that the step has to be recorded anew.
    """

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        """`example` is one image: running it shows the size that each layer works at."""
        layers = [m for m in model.modules() if isinstance(m, OrthogonalConv2d) and isinstance(m.parametrization, LOT)]
        self.layers = list(zip(layers, layer_geometries(model, layers, example), strict=True))
        self._configured = {layer: _lot(layer) for layer in layers}
        alike: dict[tuple[int, int, int], list[tuple[OrthogonalConv2d, Geometry]]] = defaultdict(list)
        for layer, geometry in self.layers:
            alike[geometry.out_channels, geometry.in_channels, geometry.kernel_size].append((layer, geometry))
        self._groups = list(alike.values())
        self.lengths = torch.zeros(len(self._groups), dtype=torch.int64)  # zeros until they are measured or restored

    def prepare(self) -> None:
        made = operators([(_lot(layer), layer.weight, geometry) for layer, geometry in self.layers])
        for (layer, _), operator in zip(self.layers, made, strict=True):
            layer.prepared = operator

    def release(self) -> None:
        """Let the layers make their own operators again."""
        for layer, _ in self.layers:
            layer.prepared = None

    @torch.no_grad()
    def largest_singular_value(self) -> float:
        """Of the operators that training uses now, from above; in the arithmetic that is set."""
        made = operators([(_lot(layer), layer.weight, geometry) for layer, geometry in self.layers])
        known = (operator.norm_matrices() for operator in made)
        values = [largest_singular_value(m) for m in known if m is not None]
        return float(torch.tensor(values, dtype=torch.float64).max())  # Python's max might pass over a NaN

    @torch.no_grad()
    def refresh(self) -> bool:
        """Measure what schedules the kernels need now, with a margin, and lengthen those that are too short; whether
        any changed.

        Never beyond the configured condition, nor 8 polynomials: what no schedule takes to one stays below it, as the
        law of a schedule has it.
        """
        lengths = self.lengths.clamp_min(_SHORTEST)
        for group, members in enumerate(self._groups):
            needed, tolerance = int(lengths[group]), self._tolerance(group)
            for gram in _grams(members):
                while needed < _LONGEST and not all_above(gram, _MARGIN * min_sigma_for_length(needed, tolerance)):
                    needed += 1
            lengths[group] = needed
        return self.restore(lengths)

    def restore(self, lengths: Tensor) -> bool:
        """Give the groups schedules of these `lengths`; whether any changed."""
        self.lengths = lengths
        changed = False
        for group, members in enumerate(self._groups):
            tolerance = self._tolerance(group)
            for layer, geometry in members:
                rows = min(geometry.out_channels, geometry.in_channels)
                condition = condition_allowed(rows, min_sigma_for_length(int(lengths[group]), tolerance))
                lot = self._configured[layer]
                lot = replace(lot, condition=min(condition, lot.condition), tolerance=tolerance)
                changed |= lot != layer.parametrization
                layer.parametrization = lot
        return changed

    def _tolerance(self, group: int) -> float:
        return max(_TOLERANCE, *(self._configured[layer].tolerance for layer, _ in self._groups[group]))


def _grams(members: list[tuple[OrthogonalConv2d, Geometry]]) -> Iterator[Tensor]:
    """`X X*` of all scaled transfer matrices, in double precision."""
    for layer, geometry in members:
        for v in matrices(layer.weight, geometry):
            yield normalize(short_side_first(v).to(torch.complex128 if v.is_complex() else torch.float64))[2]


def _lot(layer: OrthogonalConv2d) -> LOT:
    assert isinstance(layer.parametrization, LOT)
    return layer.parametrization
