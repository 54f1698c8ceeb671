"""How much memory a network needs to be trained, from its shapes alone."""

from math import prod

import torch

from lotnet.layers import OrthogonalConv2d
from lotnet.layers.trace import trace_geometries, trace_shapes
from lotnet.models.base import ImageSpec, ModelConfig, shapes_only
from lotnet.parametrizations import LOT, Cayley, Geometry
from lotnet.parametrizations.base import sides


def least_training_bytes(config: ModelConfig, images: ImageSpec, batch: int, itemsize: int = 4) -> int:
    """A lower bound of the memory of one training step, in bytes, for `batch` images of numbers of `itemsize` bytes.

    Only tensors that certainly are in memory when the backward pass begins are counted:

    * the output of each layer, for all images of the batch;
    * for each layer that has one matrix for each frequency, the matrices of the free kernel, their orthogonal factors,
      and these as real blocks: together eight numbers for each frequency, channel in and channel out.

    The true peak is two to four times as large. Nothing of this size is made here, because the network runs on
    PyTorch's meta device.
    """
    with torch.device("meta"):
        model = config.build(images)[:-1]  # the last layer is small, and cannot run without numbers
        example = torch.zeros(1, *images.shape)
        with shapes_only(model):
            shapes = trace_shapes(model, model.children(), example)
            geometries = trace_geometries(model, example)
    outputs = sum(prod(layer.output) for layer in shapes.values())
    matrices = sum(_matrix_entries(layer, geometry) for layer, geometry in geometries.items())
    return itemsize * (batch * outputs + 8 * matrices)


def _matrix_entries(layer: OrthogonalConv2d, geometry: Geometry) -> int:
    """Entries of the matrices of a layer at all frequencies of the half spectrum; 0 if it has none."""
    if not isinstance(layer.parametrization, LOT | Cayley) or sides(geometry.kernel_size) == (1, 1):
        return 0
    frequencies = geometry.grid.rows * (geometry.grid.columns // 2 + 1)
    return frequencies * geometry.groups * geometry.out_channels * geometry.in_channels
