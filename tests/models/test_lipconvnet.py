"""LipConvnet as the paper and its predecessor define it."""

import dataclasses

import pytest
import torch
from torch import nn

from lotnet.errors import InputError
from lotnet.layers import ConvexResidual, Normalize, NormalizedLinear, OrthogonalConv2d, OrthogonalLinear, freeze
from lotnet.models import (
    MODELS,
    ImageSpec,
    LipConvnet,
    LipResNet18,
    convolution_count,
    describe,
    parameter_count,
)
from lotnet.parametrizations import SOC

COLOUR = ImageSpec(3, 32, 32, 10, (0.49, 0.48, 0.45), 0.2507)


def layers(model: nn.Sequential) -> list[nn.Module]:
    return list(model)[1:-2]  # without Normalize, Flatten and the head


def convolution(layer: nn.Module) -> OrthogonalConv2d:
    block = layer.block if isinstance(layer, ConvexResidual) else layer
    return block[0]


@pytest.mark.parametrize("depth", [5, 10, 15, 40])
def test_stages(depth: int) -> None:
    with torch.device("meta"):
        model = LipConvnet(depth=depth, channels=4).build(COLOUR)
    assert isinstance(model[0], Normalize)
    assert isinstance(model[-1], OrthogonalLinear)
    found = layers(model)
    assert len(found) == depth
    per_stage, channels = depth // 5, 3
    for place, layer in enumerate(found):
        stage, n = divmod(place, per_stage)
        last, conv = n == per_stage - 1, convolution(layer)
        assert conv.in_channels == channels
        assert conv.out_channels == 4 * 2 ** (stage + last)
        assert conv.stride == ((2, 2) if last else (1, 1))
        assert conv.kernel_size == (1 if place == depth - 1 else 3)
        assert isinstance(layer, ConvexResidual) == (0 < n < per_stage - 1)
        channels = conv.out_channels
    assert model[-1].in_features == 4 * 2**5


def test_no_residuals_when_switched_off() -> None:
    with torch.device("meta"):
        model = LipConvnet(depth=20, channels=4, residual=False).build(COLOUR)
    assert not any(isinstance(m, ConvexResidual) for m in model.modules())


def test_dense_layers_stand_before_the_head() -> None:
    model = LipConvnet(channels=2, dense_layers=3, activation="hh1").build(COLOUR)
    found = list(model)[-4:-1]
    assert all(isinstance(layer[0], OrthogonalLinear) and layer[0].in_features == 2**6 for layer in found)
    frozen, images = freeze(model.eval(), 32), torch.rand(2, 3, 32, 32)
    assert torch.allclose(frozen(images), model(images), atol=1e-5)
    assert float(frozen.lipschitz_bound()) <= 1 / 0.2507 * (1 + 1e-5)


def test_a_quasi_residual_start_is_near_the_identity() -> None:
    """The kernel has the operator of I + gamma U / sqrt(depth), whatever its scale."""
    x = torch.randn(4, 8, 6, 6)
    far = {}
    for gamma in (0.01, 0.1, 1.0):
        torch.manual_seed(0)
        layer = LipConvnet(depth=20, channels=8, start="quasi-residual", gamma=gamma).convolution(8, 8, 3)
        torch.manual_seed(0)
        random = torch.randn(8, 8, 3, 3) / 72**0.5
        plain = LipConvnet().convolution(8, 8, 3)
        with torch.no_grad():
            plain.weight += gamma * random / 20**0.5
        assert torch.allclose(layer.eval()(x), plain.eval()(x), atol=1e-5)
        far[gamma] = (layer(x) - x).norm().item()
    assert 0 < far[0.01] < far[0.1] < far[1.0]
    strided = LipConvnet(start="quasi-residual").convolution(8, 32, 3, 2)
    assert 0.5 < float(strided.weight.detach().square().sum()) / 32 < 2  # all other layers start at random


@pytest.mark.parametrize(("height", "width", "stages"), [(8, 8, 3), (64, 64, 5), (24, 24, 3), (16, 40, 3), (2, 2, 1)])
def test_any_even_side(height: int, width: int, stages: int) -> None:
    images = dataclasses.replace(COLOUR, height=height, width=width)
    model = LipConvnet(depth=5, channels=8).build(images)
    assert len(layers(model)) == stages
    assert model(torch.rand(2, 3, height, width)).shape == (2, 10)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: LipConvnet(depth=7), "multiple of 5"),
        (lambda: LipConvnet(depth=0), "multiple of 5"),
        (lambda: LipConvnet(channels=3), "even"),
        (lambda: LipConvnet(dense_layers=-1), "dense_layers must be at least 0"),
        (lambda: LipConvnet(gamma=0), "gamma must be between 1e-6 and 1e6, not 0"),
        (lambda: LipConvnet(start="quasi-residual", parametrization="soc"), "works with lot only, not with soc"),
        (lambda: LipConvnet().build(dataclasses.replace(COLOUR, height=31, width=31)), "even side"),
        (lambda: LipConvnet(channels=2).build(dataclasses.replace(COLOUR, classes=500)), "more channels"),
        (
            lambda: LipConvnet(options={"nope": 1}).build(COLOUR),
            "lot has no setting nope: choose among tolerance, cond",
        ),
        (lambda: LipConvnet(parametrization="bcop", options={"a": 1}).build(COLOUR), "leave out model.options"),
        (lambda: LipConvnet(options={"condition": 0.0}).build(COLOUR), "condition from 1 to 1e15"),
        (lambda: LipConvnet(parametrization="soc", options={"terms": 2.5}).build(COLOUR), "whole number of terms"),
        (lambda: LipConvnet(activation="relu"), "unknown activation 'relu': choose one of maxmin, hh1, hh2"),
        (lambda: LipResNet18(head="softmax"), "unknown head"),
        (lambda: LipConvnet(parametrization="nope").build(COLOUR), "unknown parametrization"),
        (lambda: LipResNet18().build(dataclasses.replace(COLOUR, height=20, width=20)), "multiple of 8"),
    ],
)
def test_what_cannot_be_built_gives_a_clear_error(make, word: str) -> None:
    with pytest.raises(InputError, match=word):
        make()


def test_integer_options_are_converted_back_from_floats() -> None:
    """The command line parses every number of `options` as a float."""
    model = LipConvnet(channels=2, parametrization="soc", head="lln", options={"terms": 4.0}).build(COLOUR)
    assert convolution(layers(model)[0]).parametrization == SOC(terms=4)
    assert model(torch.rand(1, 3, 32, 32)).shape == (1, 10)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("head", ["orthogonal", "lln"])
def test_every_model_is_one_lipschitz_after_its_normalisation(kind: str, head: str) -> None:
    torch.manual_seed(0)
    images = ImageSpec(1, 8, 8, 4, (0.3,), 0.4)
    small = {"depth": 2, "dense_layers": 1, "dense_width": 16} if kind == "lipwidenet" else {}
    model = MODELS[kind](channels=4, head=head, activation="hh1", **small).build(images)
    model(torch.rand(8, 1, 8, 8))  # running means
    model.eval()
    x, y = torch.rand(2, 64, 1, 8, 8)
    with torch.no_grad():
        moved = (model[:-1](x) - model[:-1](y)).norm(dim=1)
    assert (moved <= (x - y).flatten(1).norm(dim=1) / 0.4 * (1 + 1e-5)).all()
    assert isinstance(model[-1], NormalizedLinear) == (head == "lln")
    frozen = freeze(model, (1, 8, 8), torch.float64)
    torch.testing.assert_close(frozen(x.double()).float(), model(x), rtol=1e-4, atol=1e-4)


def test_describe_names_every_layer() -> None:
    model = LipConvnet(channels=4).build(COLOUR)
    rows = describe(model, torch.zeros(1, 3, 32, 32))
    assert len(rows) == len(model)
    assert sum(count for *_, count in rows) == parameter_count(model)
    assert rows[-1][2] == (10,)


@pytest.mark.parametrize("depth", (5, 20))
def test_circular_padding_reads_no_pixel_twice(depth: int) -> None:
    """A 3 x 3 kernel on 2 x 2 pixels would; the paper's network with circular padding ends at that size."""
    model = LipConvnet(depth=depth, channels=2, head="lln", padding_mode="circular").build(COLOUR)
    with torch.no_grad():
        assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    sizes = [convolution(layer).kernel_size for layer in layers(model)]
    n = depth // 5
    assert sizes[: 4 * n - 1] == [3] * (4 * n - 1) and sizes[4 * n - 1 : -1] == [2] * n and sizes[-1] == 1
    plain = LipConvnet(depth=depth, channels=2, head="lln").build(COLOUR)
    assert [convolution(layer).kernel_size for layer in layers(plain)] == [3] * (depth - 1) + [1]


@pytest.mark.parametrize("size", [(8, 8), (28, 28), (27, 27), (24, 40), (32, 32)])
@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
def test_full_depth_keeps_the_layers_where_the_image_does_not_halve(size: tuple[int, int], padding_mode: str) -> None:
    config = LipConvnet(depth=10, channels=2, head="lln", padding_mode=padding_mode, full_depth=True)
    network = config.build(ImageSpec(1, *size, classes=3))
    assert convolution_count(network) == 10
    assert network(torch.rand(2, 1, *size)).shape == (2, 3)


def test_an_image_that_halves_five_times_gives_the_same_network_either_way() -> None:
    networks = [LipConvnet(depth=10, channels=2, full_depth=on).build(ImageSpec(3, 32, 64, 4)) for on in (True, False)]
    shapes = [{name: tensor.shape for name, tensor in network.state_dict().items()} for network in networks]
    assert shapes[0] == shapes[1]


def test_the_description_names_layers_and_true_shapes_without_orthogonalising(monkeypatch) -> None:
    model = LipConvnet(depth=15, channels=4, activation="hh1").build(ImageSpec(1, 8, 8, 3))
    outputs = []
    for stage in model.children():
        stage.register_forward_hook(lambda _, inputs, output: outputs.append(tuple(output.shape[1:])))
    model(torch.rand(1, 1, 8, 8))
    true_shapes, outputs = outputs, []
    monkeypatch.setattr(OrthogonalConv2d, "operator", None)
    rows = describe(model, torch.zeros(1, 1, 8, 8))
    assert [row[2] for row in rows] == true_shapes
    layers = [row[1] for row in rows]
    assert layers[1] == "OrthogonalConv2d(1, 4, kernel_size=3, LOT) + Householder(4, order=1)"
    assert layers[2].startswith("average of input and (OrthogonalConv2d(4, 4, kernel_size=3, LOT) + ")
    assert "stride=2" in layers[3]
    assert not any("Sequential" in layer for layer in layers)
    monkeypatch.undo()
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 3)  # it works as before
