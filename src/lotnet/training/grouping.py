"""Orthogonalisation of all LOT layers together, with no more steps than their kernels need."""

from collections import defaultdict
from dataclasses import replace

import torch
from torch import Tensor, nn

from lotnet.layers import OrthogonalConv2d
from lotnet.linalg.planar import real_blocks
from lotnet.linalg.polar import (
    all_above,
    condition_allowed,
    largest_singular_value,
    normalize,
    short_side_first,
)
from lotnet.linalg.polynomials import widest
from lotnet.parametrizations import LOT, Geometry
from lotnet.parametrizations.lot import matrices, operators
from lotnet.parametrizations.operators import Blocks, Kernel, Operator, Spectrum
from lotnet.training.sharing import layer_geometries

# Of schedules, in polynomials. More would need inverses beyond the range of half precision.
_LENGTHS = range(4, 9)
_MARGIN = 1.5  # by which the smallest singular value may shrink until it is measured again
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
        values = [largest_singular_value(_matrices(operator)) for operator in made]
        return float(torch.tensor(values, dtype=torch.float64).max())  # Python's max might pass over a NaN

    @torch.no_grad()
    def refresh(self) -> bool:
        """Measure what condition the kernels have now, and allow for the largest that takes no more polynomials;
        whether anything changed.

        Layers alike share condition and tolerance, so that they stay in one group. Never more than the configured
        condition, nor than 8 polynomials do: what is beyond that stays below one, as the law of a schedule has it.
        """
        alike: dict[tuple[int, int, int], list[tuple[OrthogonalConv2d, Geometry]]] = defaultdict(list)
        for layer, geometry in self.layers:
            alike[geometry.out_channels, geometry.in_channels, geometry.kernel_size].append((layer, geometry))
        changed = False
        for members in alike.values():
            tolerance = max(_TOLERANCE, *(self._configured[layer].tolerance for layer, _ in members))
            needed = max(_needed(v, tolerance) for layer, geometry in members for v in matrices(layer.weight, geometry))
            for layer, _ in members:
                lot = self._configured[layer]
                lot = replace(lot, condition=min(needed, lot.condition), tolerance=tolerance)
                changed |= lot != layer.parametrization
                layer.parametrization = lot
        return changed


def _needed(v: Tensor, tolerance: float) -> float:
    """The largest condition number that a schedule no longer than these matrices need allows for."""
    x = short_side_first(v).to(torch.complex128 if v.is_complex() else torch.float64)
    _, _, gram, _ = normalize(x)
    for length in _LENGTHS:
        lower = widest(length, tolerance)
        if all_above(gram, _MARGIN * lower):
            break
    return condition_allowed(x.shape[-2], lower)


def _matrices(operator: Operator) -> Tensor:  # f o i, real
    if isinstance(operator, Kernel):  # of one tap
        return operator.kernel[None, :, :, 0, 0]
    assert isinstance(operator, Spectrum | Blocks)
    return operator.blocks if isinstance(operator, Blocks) else real_blocks(operator.transfers)


def _lot(layer: OrthogonalConv2d) -> LOT:
    assert isinstance(layer.parametrization, LOT)
    return layer.parametrization
