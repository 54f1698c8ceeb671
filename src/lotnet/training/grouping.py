"""Orthogonalisation of all LOT layers together, with no more steps than their kernels need."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from lotnet.layers import OrthogonalConv2d
from lotnet.linalg.planar import real_blocks
from lotnet.linalg.polar import deviation, largest_singular_value, polar
from lotnet.parametrizations import LOT, Geometry
from lotnet.parametrizations.lot import matrices, operators
from lotnet.parametrizations.operators import Blocks, Kernel, Operator, Spectrum
from lotnet.training.sharing import layer_geometries

# Condition numbers that schedules are made for; most trained kernels need one of the first.
_CONDITIONS = (4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
# A result counts as orthonormal below this `deviation`; the products' own rounding, TF32's at worst, stays under it.
_ORTHONORMAL = 2e-3
_TOLERANCE = 1e-4  # of the schedules: below that rounding, and next to it, decides


class GroupedOrthogonalization:
    """`prepare()` before each step gives every LOT layer of `model` its operator; `refresh()` now and then."""

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        """`example` is one image: running it shows the size that each layer works at."""
        layers = [m for m in model.modules() if isinstance(m, OrthogonalConv2d) and isinstance(m.parametrization, LOT)]
        self.layers = list(zip(layers, layer_geometries(model, layers, example), strict=True))
        self._configured = {layer: _lot(layer) for layer in layers}

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
        return max(largest_singular_value(_matrices(operator)) for operator in made)

    @torch.no_grad()
    def refresh(self) -> bool:
        """Measure what condition the kernels have now, and allow for the next in the table; whether anything changed.

        Layers alike share a schedule, so that they stay in one group. Never more than the configured condition: what
        is beyond that stays below one, as the law of a schedule has it.
        """
        alike: dict[tuple[int, int, int], list[tuple[OrthogonalConv2d, Geometry]]] = defaultdict(list)
        for layer, geometry in self.layers:
            alike[geometry.out_channels, geometry.in_channels, geometry.kernel_size].append((layer, geometry))
        changed = False
        for members in alike.values():
            needed = max(_needed(v) for layer, geometry in members for v in matrices(layer.weight, geometry))
            for layer, _ in members:
                lot = self._configured[layer]
                lot = replace(lot, condition=min(needed, lot.condition), tolerance=max(_TOLERANCE, lot.tolerance))
                changed |= lot != layer.parametrization
                layer.parametrization = lot
        return changed


def _needed(v: Tensor) -> float:
    """The condition number in the table after the smallest whose schedule makes these matrices orthonormal."""
    for condition, following in pairwise(_CONDITIONS):
        if deviation(polar(v, tolerance=_TOLERANCE, condition=condition)) < _ORTHONORMAL:
            return following
    return _CONDITIONS[-1]


def _matrices(operator: Operator) -> Tensor:  # f o i, real
    if isinstance(operator, Kernel):  # of one tap
        return operator.kernel[None, :, :, 0, 0]
    assert isinstance(operator, Spectrum | Blocks)
    return operator.blocks if isinstance(operator, Blocks) else real_blocks(operator.transfers)


def _lot(layer: OrthogonalConv2d) -> LOT:
    assert isinstance(layer.parametrization, LOT)
    return layer.parametrization
