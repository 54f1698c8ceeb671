"""`with orthogonalized(model):` orthogonalises each layer once for all forward and backward passes in the block."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lotnet.errors import InputError
from lotnet.kernels import dispatch
from lotnet.layers import OrthogonalConv2d
from lotnet.operators import Operator
from lotnet.orthogonalize.grouping import Wanted, joint_operators
from lotnet.orthogonalize.schedules import in_batches, measure
from lotnet.parametrizations import Geometry

Compute = Callable[[Wanted], list[Operator]]


@contextmanager
def orthogonalized(model: nn.Module) -> Iterator[None]:
    """Orthogonalise all layers of `model` that are in training mode once, for everything that runs in the block.

    Contract:

    * the result is that of training without the block, up to the order of summation;
    * any number of forward and backward passes in the block share one orthogonalisation. It works with autocast,
      gradient accumulation, several image sizes and layers that are used more than once;
    * kernels get their gradients when the block ends, added to what their `grad` holds. So clipping, unscaling and the
      optimizer's step come after the block; an optimizer's step on a kernel inside raises an `InputError`;
    * `backward(create_graph=True)` raises an `InputError`, and `torch.autograd.grad` finds no path to a kernel;
    * after an exception kernels get no gradient, and the layers are as before the block. A block for a layer that is in
      another block already raises an `InputError`;
    * under `DistributedDataParallel`, pass the wrapped model. With several backward passes in a block, all but the last
      one, with its forward pass, run under `no_sync()`.

    The image size of a layer is learnt in the first forward pass. From the second block on, layers of the same shape
    are orthogonalised together on a GPU, with no more steps than their kernels need: the second block measures the
    kernels, and so does every 500th after it. A layer that meets another size computes one more operator.

    >>> from lotnet import OrthogonalConv2d
    >>> model = nn.Sequential(OrthogonalConv2d(3, 8, 3), nn.Flatten())
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with orthogonalized(model):
    ...     for images in torch.rand(4, 16, 3, 8, 8):  # four micro-batches, one orthogonalisation
    ...         model(images).square().mean().backward()
    >>> optimizer.step()
    """
    _check_parallel(model)
    layers = orthogonal_layers(model)
    _measure_when_due(layers)
    with operators_as_leaves(layers):
        yield


def orthogonal_layers(model: nn.Module) -> list[OrthogonalConv2d]:
    return [module for module in model.modules() if isinstance(module, OrthogonalConv2d)]


@contextmanager
def operators_as_leaves(layers: Sequence[OrthogonalConv2d], compute: Compute = joint_operators) -> Iterator[None]:
    """The block of `orthogonalized`, which measures nothing. `compute` gives operators with a path to the kernels."""
    block = _Block(layers, compute)
    try:
        block.prepare()
        yield
        block.backward()
    finally:
        block.release()


MEASURE_EVERY = 500  # steps between measurements of the kernels: one takes about as long as ten steps

_sizes: WeakKeyDictionary[OrthogonalConv2d, list[Geometry]] = WeakKeyDictionary()
"""The geometries that each layer worked at in its last block."""
_blocks: WeakKeyDictionary[OrthogonalConv2d, int] = WeakKeyDictionary()
"""Number of blocks that began with this layer since its size is known."""


def measure_again(model: nn.Module) -> bool:
    """Measure the kernels of a model that has been in a block; return whether a step must be recorded again."""
    return measure(known_layers(model))


def known_layers(model: nn.Module) -> Wanted:
    """The layers that a GPU orthogonalises together, with the image sizes that they met in their last block."""
    return _in_batches(orthogonal_layers(model))


def _measure_when_due(layers: Sequence[OrthogonalConv2d]) -> None:
    known = _in_batches(layers)
    if not known or dispatch.recording(known[0][0].weight):
        return
    count = _blocks.get(known[0][0], 0)
    _blocks[known[0][0]] = count + 1
    if count % MEASURE_EVERY == 0:
        measure(known)


def _in_batches(layers: Sequence[OrthogonalConv2d]) -> Wanted:
    return [(layer, g) for layer in layers if layer.training and in_batches(layer) for g in _sizes.get(layer, ())]


class _Block:
    """The operators of one block. Layers apply them as leaves of autograd's graph, which collect gradients."""

    def __init__(self, layers: Sequence[OrthogonalConv2d], compute: Compute) -> None:
        if any(layer.prepared is not None for layer in layers):
            raise InputError(
                "a layer of this model is orthogonalised already: use one `with orthogonalized(model)` block at a time"
            )
        self._layers, self._compute_operators = layers, compute
        self._leaves: dict[OrthogonalConv2d, dict[Geometry, Operator]] = defaultdict(dict)
        self._used: dict[OrthogonalConv2d, dict[Geometry, None]] = defaultdict(dict)  # in the order of first use
        self._pairs: list[tuple[Tensor, Tensor]] = []
        """What was computed from a kernel, and the leaf that stands for it."""
        self._versions = [layer.weight._version for layer in layers]
        self._hook = register_optimizer_step_pre_hook(self._refuse_step)

    def prepare(self) -> None:
        self._compute([(layer, g) for layer in self._layers if layer.training for g in _sizes.get(layer, ())])
        for layer in self._layers:
            layer.prepared = partial(self._operator, layer)

    def backward(self) -> None:
        """Pass the gradients that the leaves have collected on to the kernels, all at once."""
        _sizes.update({layer: list(used) for layer, used in self._used.items()})
        self._check()
        found = [(computed, leaf.grad) for computed, leaf in self._pairs if leaf.grad is not None]
        if found:
            with _plain_arithmetic(self._layers):
                torch.autograd.backward([computed for computed, _ in found], [grad for _, grad in found])

    def release(self) -> None:
        self._hook.remove()
        for layer in self._layers:
            layer.prepared = None

    def _operator(self, layer: OrthogonalConv2d, geometry: Geometry) -> Operator:
        if geometry not in self._leaves[layer]:
            self._compute([(layer, geometry)])
        self._used[layer][geometry] = None
        return self._leaves[layer][geometry]

    def _compute(self, wanted: Sequence[tuple[OrthogonalConv2d, Geometry]]) -> None:
        # Under `no_grad`, too: a later pass in the block may need gradients.
        with torch.inference_mode(False), torch.enable_grad(), _plain_arithmetic(self._layers):
            for (layer, geometry), operator in zip(wanted, self._compute_operators(wanted), strict=True):
                leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in operator.tensors()]
                self._pairs += [pair for pair in zip(operator.tensors(), leaves, strict=True) if pair[0].requires_grad]
                self._leaves[layer][geometry] = operator.with_tensors(leaves)

    def _check(self) -> None:
        if any(leaf.grad is not None and leaf.grad.requires_grad for _, leaf in self._pairs):
            raise InputError(
                "there are no second derivatives through `orthogonalized`: leave out create_graph, or the block"
            )
        if self._versions != [layer.weight._version for layer in self._layers]:
            raise InputError(
                "a kernel changed inside a block of `orthogonalized`, so its gradient would be wrong: change kernels "
                "after the block"
            )

    def _refuse_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        kernels = {id(layer.weight) for layer in self._layers}
        if any(id(parameter) in kernels for group in optimizer.param_groups for parameter in group["params"]):
            raise InputError(
                "kernels have no gradients before the block of `orthogonalized` ends: call optimizer.step() after it"
            )


@contextmanager
def _plain_arithmetic(layers: Sequence[OrthogonalConv2d]) -> Iterator[None]:
    """Orthogonalise without autocast, in both directions."""
    device = layers[0].weight.device.type if layers else "cpu"
    with torch.autocast(device, enabled=False):
        yield


def _check_parallel(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, DistributedDataParallel) and (module.find_unused_parameters or module.static_graph):
            raise InputError(
                "DistributedDataParallel would take kernels for unused parameters, because they get their gradients "
                "after its backward pass: leave find_unused_parameters and static_graph out"
            )
