"""Shapes inside a model: what is recorded, and that the model is left unchanged."""

import pytest
import torch
from torch import Tensor, nn

from lotnet.layers import MaxMin, OrthogonalConv2d
from lotnet.layers.trace import LayerShapes, trace_geometries, trace_shapes


class Recorder(nn.Module):
    """Counts its calls, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bool] = []
        self.broken = False

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(self.training)
        if self.broken:
            raise RuntimeError("broken")
        return x


def network() -> nn.Sequential:
    return nn.Sequential(
        OrthogonalConv2d(3, 8, 3, stride=2), Recorder(), MaxMin(), OrthogonalConv2d(8, 4, 3), nn.Flatten()
    )


def test_shapes_of_the_layers_asked_for() -> None:
    model = network()
    shapes = trace_shapes(model, [model[0], model[4]], torch.zeros(2, 3, 8, 8))
    assert shapes == {
        model[0]: LayerShapes((2, 3, 8, 8), (2, 8, 4, 4)),
        model[4]: LayerShapes((2, 4, 4, 4), (2, 64)),
    }


def test_geometries_are_at_the_downsampled_size() -> None:
    model = network()
    found = trace_geometries(model, torch.zeros(1, 3, 8, 8))
    assert list(found) == [model[0], model[3]]
    assert found[model[0]] == model[0].geometry(4, 4) and found[model[3]] == model[3].geometry(4, 4)


@pytest.mark.parametrize("broken", [False, True])
def test_the_model_is_left_unchanged(broken: bool) -> None:
    """This holds also if the model raises: every mode is restored, and later calls are not recorded."""
    model = network().train()
    model[2].eval()
    recorder = model[1]
    assert isinstance(recorder, Recorder)
    recorder.broken = broken
    shapes = {}
    if broken:
        with pytest.raises(RuntimeError, match="broken"):
            trace_shapes(model, model, torch.zeros(1, 3, 8, 8))
    else:
        shapes = trace_shapes(model, model, torch.zeros(1, 3, 8, 8))
    assert recorder.calls == [False]
    assert model.training and [layer.training for layer in model] == [True, True, False, True, True]
    recorder.broken = False
    model(torch.zeros(5, 3, 8, 8))
    assert all(shape.input[0] == 1 for shape in shapes.values())
