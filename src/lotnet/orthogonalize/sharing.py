"""Orthogonalisation divided among the processes of data-parallel training.

Every process has every weight and needs every operator. A layer's operator is the same everywhere, so one process, the
layer's owner, computes it and sends it to the others. In the backward pass, the gradients with respect to the operator
T are summed at the owner, which takes them through the parametrization once. The others contribute zero for that weight
V, and the average that data-parallel training takes over its W processes anyway gives all of them

    (1/W) (dT/dV)^T (sum of all processes' gradients with respect to T).

Every process would get the same gradient by computing all operators itself.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lotnet.layers.trace import trace_geometries
from lotnet.operators import Operator
from lotnet.parametrizations import Geometry


class SharedOrthogonalization:
    """`distribute()` before each training step gives every layer of `model` its operator."""

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        """`example` is one image: running it shows the size that each layer works at."""
        traced = trace_geometries(model, example)
        self._layers, self._geometries = list(traced), list(traced.values())
        with torch.no_grad():
            self._templates = [_to_meta(self._operator(n)) for n in range(len(self._layers))]
        owners = assign_owners([_cost(g) for g in self._geometries], dist.get_world_size())
        self._owners = owners
        # An operator may have several tensors: each is a message of its own.
        self._messages = [
            (owner, _as_real(tensor).shape)
            for owner, template in zip(owners, self._templates, strict=True)
            for tensor in template.tensors()
        ]

    def distribute(self) -> None:
        rank = dist.get_rank()
        # Each process computes all of its own layers before the exchange, so that none waits for another in between.
        inputs = [
            tensor
            for n, owner in enumerate(self._owners)
            for tensor in (self._own_tensors(n) if owner == rank else self._placeholders(n))
        ]
        # One graph node for all layers: its backward pass runs when all gradients are there, at the same place on every
        # process, so that its messages cannot interleave with the messages of data-parallel training.
        outputs = iter(_Exchange.apply(self._messages, *inputs))
        for layer, geometry, template in zip(self._layers, self._geometries, self._templates, strict=True):
            tensors = [_like(next(outputs), old) for old in template.tensors()]
            layer.prepared = {geometry: template.with_tensors(tensors)}.get

    def _own_tensors(self, n: int) -> list[Tensor]:
        return [_as_real(tensor) for tensor in self._operator(n).tensors()]

    def _placeholders(self, n: int) -> list[Tensor]:
        """The weight, as a placeholder for each tensor that another process computes: it receives a zero gradient."""
        return [self._layers[n].weight] * len(self._templates[n].tensors())

    def _operator(self, n: int) -> Operator:
        layer = self._layers[n]
        return layer.parametrization.grouped(layer.free_weight(), self._geometries[n])


class _Exchange(torch.autograd.Function):
    """Send tensors from their owners to all processes, and sum gradients at the owners.

    The input of an owner is its operator's tensor. The input of any other process is the weight, which receives a zero
    gradient.
    """

    @staticmethod
    def forward(ctx: Any, messages: list[tuple[int, torch.Size]], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.owners, ctx.shapes = [owner for owner, _ in messages], [x.shape for x in inputs]
        rank = dist.get_rank()
        outputs = [
            x.detach().clone() if owner == rank else x.new_empty(shape)
            for (owner, shape), x in zip(messages, inputs, strict=True)
        ]
        sent = [dist.broadcast(output, owner, async_op=True) for owner, output in zip(ctx.owners, outputs, strict=True)]
        for message in sent:
            message.wait()
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rank = dist.get_rank()
        totals = [gradient.contiguous().clone() for gradient in gradients]  # the sum overwrites them
        sent = [dist.reduce(total, owner, async_op=True) for owner, total in zip(ctx.owners, totals, strict=True)]
        for message in sent:
            message.wait()
        results = [
            total if owner == rank else total.new_zeros(shape)
            for owner, total, shape in zip(ctx.owners, totals, ctx.shapes, strict=True)
        ]
        return None, *results


def assign_owners(costs: list[float], processes: int) -> list[int]:
    """Assign a process to each cost: the most expensive first, each to the process with the least work so far."""
    loads, owners = [0.0] * processes, [0] * len(costs)
    for n in sorted(range(len(costs)), key=lambda n: -costs[n]):
        owners[n] = min(range(processes), key=lambda r: loads[r])
        loads[owners[n]] += costs[n]
    return owners


def _cost(geometry: Geometry) -> float:
    """Multiplications in one step of the iteration, over all frequencies."""
    short, long = sorted((geometry.out_channels, geometry.in_channels))
    frequencies = 1 if geometry.kernel_size == 1 else geometry.grid.rows * geometry.grid.columns
    return geometry.groups * frequencies * short * short * long


def _to_meta(operator: Operator) -> Operator:
    """The operator with its tensors on the meta device, without numbers."""
    return operator.with_tensors([tensor.to("meta") for tensor in operator.tensors()])


def _as_real(tensor: Tensor) -> Tensor:
    """Complex numbers as pairs of reals: not every communication backend supports complex ones."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _like(tensor: Tensor, template: Tensor) -> Tensor:
    """The inverse of `_as_real`, for a tensor that is complex if `template` is."""
    return torch.view_as_complex(tensor.contiguous()) if template.is_complex() else tensor
