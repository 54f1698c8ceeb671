"""Record shapes inside a model by running one example through it."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lotnet.layers.conv import OrthogonalConv2d
from lotnet.parametrizations import Geometry


@dataclass(frozen=True)
class LayerShapes:
    """Shapes of the tensors that go into a layer and come out of it, batch first."""

    input: tuple[int, ...]
    output: tuple[int, ...]


def trace_shapes(model: nn.Module, layers: Iterable[nn.Module], example: Tensor) -> dict[nn.Module, LayerShapes]:
    """Run `example` through `model` in `eval()` mode without gradients, and record the shapes at each of `layers`.

    Afterwards the training mode of every module is restored. A layer that does not run has no entry. A layer that runs
    more than once has the shapes of its last call.
    """
    shapes: dict[nn.Module, LayerShapes] = {}

    def record(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        shapes[layer] = LayerShapes(tuple(inputs[0].shape), tuple(output.shape))

    modes = [(module, module.training) for module in model.modules()]
    with ExitStack() as stack, torch.no_grad():
        for layer in layers:
            stack.callback(layer.register_forward_hook(record).remove)
        stack.callback(_set_modes, modes)
        model.eval()
        model(example)
    return shapes


def trace_geometries(model: nn.Module, example: Tensor) -> dict[OrthogonalConv2d, Geometry]:
    """The geometry of each orthogonal convolution in `model`, at the size of its input when `model` runs `example`."""
    layers = [module for module in model.modules() if isinstance(module, OrthogonalConv2d)]
    shapes = trace_shapes(model, layers, example)
    geometries = {}
    for layer in layers:
        if layer in shapes:
            sides = zip(shapes[layer].input[-2:], layer.stride, strict=True)
            height, width = (side // stride for side, stride in sides)
            geometries[layer] = layer.geometry(height, width)
    return geometries


def _set_modes(modes: list[tuple[nn.Module, bool]]) -> None:
    for module, training in modes:
        module.training = training
