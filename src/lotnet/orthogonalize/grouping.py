"""Orthogonalisation of all LOT layers together, with no more steps than their kernels need."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from lotnet.kernels import dispatch
from lotnet.layers import OrthogonalConv2d
from lotnet.layers.trace import trace_geometries
from lotnet.linalg.polar import (
    all_above,
    largest_singular_value,
    max_condition,
    normalize,
    short_side_first,
)
from lotnet.linalg.polynomials import min_sigma_for_length
from lotnet.operators import Operator
from lotnet.parametrizations import LOT, Geometry
from lotnet.parametrizations.base import KernelSize
from lotnet.parametrizations.lot import matrices, operators

_SHORTEST, _LONGEST = 4, 8  # polynomials in a schedule; longer ones need inverses beyond the range of half precision
_MARGIN = 1.5  # factor by which the smallest singular value may shrink until it is measured again
_TOLERANCE = 1e-4  # smallest tolerance of a schedule: below it, rounding errors dominate


class GroupedOrthogonalization:
    """Computes the operators of all LOT layers of `model` together, in batches.

    Call `prepare()` before each step to give every layer its operator, and `refresh()` now and then to adapt the
    lengths of the schedules. Layers of the same shape share a length, so that they stay in one batch. Lengths only
    grow: kernels become ill-conditioned in training, and every change requires the step to be recorded again.
    """

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        """`example` is one image: running it shows the size that each layer works at."""
        traced = trace_geometries(model, example)
        layers = [m for m in traced if isinstance(m.parametrization, LOT)]
        self.layers = [(layer, traced[layer]) for layer in layers]
        self._configured = {layer: _lot(layer) for layer in layers}
        alike: dict[tuple[int, int, KernelSize], list[tuple[OrthogonalConv2d, Geometry]]] = defaultdict(list)
        for layer, geometry in self.layers:
            alike[geometry.out_channels, geometry.in_channels, geometry.kernel_size].append((layer, geometry))
        self._groups = list(alike.values())
        self.lengths = torch.zeros(len(self._groups), dtype=torch.int64)  # zero until measured or restored

    def prepare(self) -> None:
        for (layer, geometry), operator in zip(self.layers, joint_operators(self.layers), strict=True):
            layer.prepared = {geometry: operator}.get

    def release(self) -> None:
        """Let the layers compute their own operators again."""
        for layer, _ in self.layers:
            layer.prepared = None

    @torch.no_grad()
    def largest_singular_value(self) -> float:
        """Upper bound of the largest singular value of the current training operators, at the current precision."""
        known = (operator.norm_matrices() for operator in joint_operators(self.layers))
        values = [largest_singular_value(m) for m in known if m is not None]
        return float(torch.tensor(values, dtype=torch.float64).max())  # Python's max might pass over a NaN

    @torch.no_grad()
    def refresh(self) -> bool:
        """Lengthen the schedules that are too short for the current kernels, with a margin; return whether any changed.

        A schedule never exceeds the configured condition number nor 8 polynomials. Singular values that are too small
        for it stay below one, by the invariant of a schedule (`linalg.polynomials`).
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
        """Give the groups schedules of these `lengths`; return whether any changed."""
        self.lengths = lengths
        changed = False
        for group, members in enumerate(self._groups):
            tolerance = self._tolerance(group)
            for layer, geometry in members:
                rows = min(geometry.out_channels, geometry.in_channels)
                condition = max_condition(rows, min_sigma_for_length(int(lengths[group]), tolerance))
                lot = self._configured[layer]
                lot = replace(lot, condition=min(condition, lot.condition), tolerance=tolerance)
                changed |= lot != layer.parametrization
                layer.parametrization = lot
        return changed

    def _tolerance(self, group: int) -> float:
        return max(_TOLERANCE, *(self._configured[layer].tolerance for layer, _ in self._groups[group]))


def joint_operators(layers: Sequence[tuple[OrthogonalConv2d, Geometry]]) -> list[Operator]:
    """The training operators of layers at these geometries. On a GPU, LOT layers are computed in batches.

    On a CPU, batches save no time, and each layer has the same bits whichever layers are computed with it.
    """
    made = {n: layer.free_operator(g) for n, (layer, g) in enumerate(layers) if not _in_batches(layer)}
    rest = [n for n in range(len(layers)) if n not in made]
    batched = operators([(_lot(layer), layer.free_weight(), g) for layer, g in (layers[n] for n in rest)])
    made |= dict(zip(rest, batched, strict=True))
    return [made[n] for n in range(len(layers))]


def _in_batches(layer: OrthogonalConv2d) -> bool:
    return isinstance(layer.parametrization, LOT) and dispatch.products_are_cheap(layer.weight)


def _grams(members: list[tuple[OrthogonalConv2d, Geometry]]) -> Iterator[Tensor]:
    """`X X*` of all scaled transfer matrices, in double precision."""
    for layer, geometry in members:
        for v in matrices(layer.weight, geometry):
            yield normalize(short_side_first(v).to(torch.complex128 if v.is_complex() else torch.float64))[2]


def _lot(layer: OrthogonalConv2d) -> LOT:
    assert isinstance(layer.parametrization, LOT)
    return layer.parametrization
