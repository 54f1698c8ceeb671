"""Orthogonalisation shared out over the processes of a data-parallel training.

Every process has every weight and needs every operator; but a layer's operator is the same everywhere, so one
process, the layer's owner, computes it and sends it to the others. Going back, the gradients with respect to the
operator T are summed at the owner, which takes them through the parametrization once. The others contribute zero for
that weight V, and the average that data-parallel training takes over its W processes anyway gives all of them

    (1/W) (dT/dV)^T (sum of all processes' gradients with respect to T):

exactly what they would have got by each doing the work.
"""

import dataclasses
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lotnet.layers import OrthogonalConv2d
from lotnet.layers.trace import trace_geometries
from lotnet.operators import Kernel, Operator, Series, Spectrum
from lotnet.parametrizations import Geometry


class SharedOrthogonalization:
    """`distribute()` before each training step gives every layer of `model` its operator."""

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        """`example` is one image: running it shows the size that each layer works at."""
        self._layers = [m for m in model.modules() if isinstance(m, OrthogonalConv2d)]
        self._geometries = layer_geometries(model, self._layers, example)
        with torch.no_grad():
            self._templates = [_to_meta(self._operator(n)) for n in range(len(self._layers))]
        self._shapes = [_real_tensor(template).shape for template in self._templates]
        self._owners = assign_owners([_cost(g) for g in self._geometries], dist.get_world_size())

    def distribute(self) -> None:
        rank = dist.get_rank()
        # First all of one's own, then the exchange: nobody waits for another's layer before his own are done.
        inputs = [
            _real_tensor(self._operator(n)) if owner == rank else self._layers[n].weight
            for n, owner in enumerate(self._owners)
        ]
        # One node of the graph for all layers: its backward runs when all gradients are there, at the same place on
        # every process, so that its messages cannot cross those of data-parallel training.
        outputs = _Exchange.apply(self._owners, self._shapes, *inputs)
        for layer, template, tensor in zip(self._layers, self._templates, outputs, strict=True):
            layer.prepared = _with_real_tensor(template, tensor)

    def _operator(self, n: int) -> Operator:
        layer = self._layers[n]
        weight = layer.weight.to(torch.promote_types(layer.weight.dtype, torch.float32))
        return layer.parametrization.operator(weight, self._geometries[n])


class _Exchange(torch.autograd.Function):
    """An owner's input is the layer's tensor, anyone else's is the weight, which receives a zero gradient."""

    @staticmethod
    def forward(ctx: Any, owners: list[int], shapes: list[torch.Size], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.owners, ctx.shapes = owners, [x.shape for x in inputs]
        rank = dist.get_rank()
        outputs = [
            x.detach().clone() if owner == rank else x.new_empty(shape)
            for owner, shape, x in zip(owners, shapes, inputs, strict=True)
        ]
        messages = [dist.broadcast(output, owner, async_op=True) for owner, output in zip(owners, outputs, strict=True)]
        for message in messages:
            message.wait()
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rank = dist.get_rank()
        totals = [gradient.contiguous().clone() for gradient in gradients]  # the sum overwrites them
        messages = [dist.reduce(total, owner, async_op=True) for owner, total in zip(ctx.owners, totals, strict=True)]
        for message in messages:
            message.wait()
        results = [
            total if owner == rank else total.new_zeros(shape)
            for owner, total, shape in zip(ctx.owners, totals, ctx.shapes, strict=True)
        ]
        return None, None, *results


def assign_owners(costs: list[float], processes: int) -> list[int]:
    """An owner for each cost: the dearest first, each to who has least so far."""
    loads, owners = [0.0] * processes, [0] * len(costs)
    for n in sorted(range(len(costs)), key=lambda n: -costs[n]):
        owners[n] = min(range(processes), key=lambda r: loads[r])
        loads[owners[n]] += costs[n]
    return owners


def _cost(geometry: Geometry) -> float:
    """Products for one step of an iteration on every frequency's short side."""
    short, long = sorted((geometry.out_channels, geometry.in_channels))
    frequencies = 1 if geometry.kernel_size == 1 else geometry.grid.rows * geometry.grid.columns
    return frequencies * short * short * long


def layer_geometries(model: nn.Module, layers: list[OrthogonalConv2d], example: Tensor) -> list[Geometry]:
    geometries = trace_geometries(model, example)
    return [geometries[layer] for layer in layers]


def _to_meta(operator: Operator) -> Operator:
    """The operator without its numbers."""
    return _with_real_tensor(operator, _real_tensor(operator).to("meta"))


def _real_tensor(operator: Operator) -> Tensor:
    """The tensor that an operator consists of, complex ones as pairs of reals: not every transport knows complex."""
    if isinstance(operator, Series):
        return operator.skew.kernel
    if isinstance(operator, Kernel):
        return operator.kernel
    if isinstance(operator, Spectrum):
        return torch.view_as_real(operator.transfers)
    raise TypeError(f"unknown operator {type(operator).__name__}")


def _with_real_tensor(operator: Operator, tensor: Tensor) -> Operator:
    if isinstance(operator, Series):
        return dataclasses.replace(operator, skew=dataclasses.replace(operator.skew, kernel=tensor))
    if isinstance(operator, Kernel):
        return dataclasses.replace(operator, kernel=tensor)
    if isinstance(operator, Spectrum):
        return dataclasses.replace(operator, transfers=torch.view_as_complex(tensor.contiguous()))
    raise TypeError(f"unknown operator {type(operator).__name__}")
