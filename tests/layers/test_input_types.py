"""Every layer refuses complex numbers and integers in one sentence, and returns nothing for an empty batch."""

import pytest
import torch
from torch import nn

import lotnet
from lotnet import layers
from lotnet.errors import InputError
from lotnet.layers import LipschitzLayer

SHAPES = {"OrthogonalLinear": (4,), "NormalizedLinear": (4,), "OrthogonalConv1d": (4, 4)}
ARGUMENTS = {
    "AveragePool": (2,),
    "Centering": (4,),
    "ChannelShift": (1,),
    "Concatenation": (nn.Identity(), nn.Identity()),
    "ConvexResidual": (nn.Identity(),),
    "GroupSort": (2,),
    "Householder": (4, 2),
    "InvertibleDownsampling": ((1, 2),),
    "InvertibleUpsampling": (2,),
    "LayerCentering": (4,),
    "MaxPool": (2,),
    "Normalize": ([0.5] * 4, 1.0),
    "NormPool": (2,),
    "NormalizedLinear": (4, 4),
    "OrthogonalConv1d": (4, 4, 3),
    "OrthogonalConv2d": (4, 4, 3),
    "OrthogonalConvTranspose2d": (4, 4, 3),
    "OrthogonalLinear": (4, 4),
}
LAYERS = [name for name in layers.__all__ if name not in ("LipschitzLayer", "freeze")]


def make(name: str) -> LipschitzLayer:
    return getattr(lotnet, name)(*ARGUMENTS.get(name, ())).eval()


@pytest.mark.parametrize("name", LAYERS)
def test_only_floating_point_numbers_are_taken(name: str) -> None:
    layer, shape = make(name), (2, *SHAPES.get(name, (4, 4, 4)))
    for dtype, remedy in ((torch.complex64, "pass real and imaginary parts"), (torch.int64, "divide 8-bit images")):
        with pytest.raises(InputError, match=rf"layers take floating-point numbers, not {dtype}: {remedy}"):
            layer(torch.zeros(shape, dtype=dtype))


@pytest.mark.parametrize("name", LAYERS)
def test_an_empty_batch_gives_an_empty_result(name: str) -> None:
    layer, shape = make(name), SHAPES.get(name, (4, 4, 4))
    assert layer(torch.zeros(0, *shape)).shape == (0, *layer(torch.zeros(2, *shape)).shape[1:])
    assert layer.train()(torch.zeros(0, *shape)).shape[0] == 0
    assert all(torch.isfinite(buffer).all() for buffer in layer.buffers())
