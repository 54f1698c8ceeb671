"""Kernel, stride, dilation and groups of `OrthogonalConv2d`, for every parametrization: a sample here, all if slow."""

import pytest
import torch
import torch.nn.functional as F
from convolution_cases import GRID, Case, sample
from layer_cases import dense, randomize
from torch import nn

from lotnet import (
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose2d,
    OrthogonalLinear,
    freeze,
    orthogonalized,
)
from lotnet.errors import InputError
from lotnet.parametrizations import PARAMETRIZATIONS
from lotnet.parametrizations.base import KernelSize, sides


def check(case: Case) -> None:
    layer, bound = case.layer(), 1.0
    if case.parametrization == "soc":
        bound = layer.parametrization.lipschitz_bound(case.kernel_size)
    trained = torch.linalg.svdvals(dense(layer.train(), case.shape, torch.float32).double())
    assert trained[0] <= bound + 1e-4
    frozen = layer.frozen(case.shape, torch.float64)
    assert frozen.fits(case.shape)
    matrix = dense(frozen, case.shape)
    values = torch.linalg.svdvals(matrix)
    assert values[0] <= float(frozen.lipschitz_bound()) * (1 + 1e-14)
    assert float(frozen.lipschitz_bound()) <= layer.parametrization.lipschitz_bound(case.kernel_size, True) + 1e-6
    assert (dense(layer.double().eval(), case.shape) - matrix).abs().max() < 1e-12
    if case.padding_mode == "circular" and layer.parametrization.orthogonal:
        assert values[-1] >= 1 - 1e-5


@pytest.mark.parametrize("case", sample(GRID), ids=str)
def test_singular_values_of_a_sample(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", GRID, ids=str)
def test_singular_values(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("padding_mode", ("zeros", "circular"))
@pytest.mark.parametrize("dilation", (1, 2, 3, (2, 3)))
@pytest.mark.parametrize("k", (1, 2, 3, 4, (3, 2), (1, 4)))
@pytest.mark.parametrize("name", ("lot", "cayley", "spectral"))
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_taps_are_aligned_as_in_pytorch(
    name: str, k: KernelSize, dilation: int | tuple[int, int], padding_mode: str
) -> None:
    """A tap alone is orthogonal already, so that the layer is a plain convolution with it."""
    sizes = {"kernel_size": k, "dilation": dilation, "padding_mode": padding_mode, "bias": False}
    layer = OrthogonalConv2d(2, 2, **sizes, parametrization=name).double().eval()
    plain = nn.Conv2d(2, 2, padding="same", **sizes).double()
    x = torch.randn(1, 2, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows, columns = sides(k)
    for tap in {(0, 0), (rows - 1, 0), (rows // 2, columns - 1), ((rows - 1) // 2, (columns - 1) // 2)}:
        with torch.no_grad():
            for kernel in (layer.weight, plain.weight):
                kernel.zero_()
                kernel[0, 1, tap[0], tap[1]], kernel[1, 0, tap[0], tap[1]] = 1, -1
        if name == "cayley" and tap != ((rows - 1) // 2, (columns - 1) // 2):
            continue  # the transform of another tap is not that tap
        if name == "cayley":
            with torch.no_grad():
                layer.weight /= 2  # (I - 2 a) / (I + 2 a) = -2 a for a rotation by a quarter turn, a half long
            assert torch.allclose(layer(x), -plain(x), atol=1e-9)
        else:
            assert torch.allclose(layer(x), plain(x), atol=1e-9)


@pytest.mark.parametrize("name", PARAMETRIZATIONS)
@pytest.mark.parametrize("stride", (1, 2))
def test_groups_are_layers_of_their_own(name: str, stride: int) -> None:
    layer = randomize(OrthogonalConv2d(4, 6, 3, stride, groups=2, parametrization=name)).eval()
    x = torch.randn(2, 4, 6, 6)
    parts = []
    for n in range(2):
        part = OrthogonalConv2d(2, 3, 3, stride, parametrization=name).eval()
        part.load_state_dict({"weight": layer.weight.chunk(2)[n], "bias": layer.bias.chunk(2)[n]})
        parts.append(part(x[:, 2 * n : 2 * n + 2]))
    assert torch.allclose(layer(x), torch.cat(parts, dim=1), atol=1e-6)
    if name != "bcop":
        assert layer.weight.shape == (6, 2 * stride**2, 3, 3)


def test_a_strided_group_holds_the_windows_of_its_channels() -> None:
    layer = OrthogonalConv2d(4, 16, 1, stride=2, groups=4, bias=False)
    x = torch.randn(1, 4, 4, 4)
    assert torch.allclose(layer(x), F.pixel_unshuffle(x, 2), atol=1e-5)


@pytest.mark.parametrize("name", PARAMETRIZATIONS)
def test_gradients_reach_every_group_through_a_dilation(name: str) -> None:
    layer = randomize(OrthogonalConv2d(4, 4, 3, dilation=2, groups=2, parametrization=name))
    x = torch.randn(2, 4, 7, 6, requires_grad=True)
    y = layer(x)
    (y * torch.randn_like(y)).sum().backward()
    assert torch.isfinite(layer.weight.grad).all() and torch.isfinite(x.grad).all()
    assert all(part.norm() > 0 for part in layer.weight.grad.chunk(2))


def test_layers_prepared_together_are_dilated_too() -> None:
    model = randomize(nn.Sequential(OrthogonalConv2d(2, 4, 3, dilation=2), OrthogonalConv2d(4, 4, 3, groups=2)))
    x = torch.randn(1, 2, 6, 5)
    expected = model(x)
    for _ in range(2):  # the second block knows the sizes
        with orthogonalized(model):
            assert torch.allclose(model(x), expected, atol=1e-4)


def test_a_grouped_and_dilated_layer_is_saved_and_loaded(tmp_path) -> None:
    from lotnet import FrozenModel

    model = randomize(nn.Sequential(OrthogonalConv2d(4, 4, 3, dilation=2, groups=2)))
    frozen = freeze(model, (4, 5, 6))
    frozen.save(tmp_path)
    x = torch.rand(2, 4, 5, 6)
    assert torch.equal(FrozenModel.load(tmp_path)(x), frozen(x))
    assert frozen.astype(torch.float64).is_intact()


@pytest.mark.parametrize("training", (True, False))
def test_an_empty_batch(training: bool) -> None:
    layer = OrthogonalConv2d(4, 8, 3, 2, dilation=2, groups=2).train(training)
    assert layer(torch.zeros(0, 4, 8, 8)).shape == (0, 8, 4, 4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    (
        ({"groups": 3}, r"4 input and 4 output channels cannot be divided into 3 groups: choose a number that divides"),
        ({"groups": 0}, r"groups must be one whole number, at least 1, not 0"),
        ({"dilation": 0}, r"dilation must be one or two whole numbers, at least 1, not 0"),
        ({"dilation": 2, "padding": 1}, r'not 1: use padding="same" or 2'),
        ({"dilation": (2, 3), "padding": 1}, r'not 1: use padding="same" or \(2, 3\)'),
    ),
)
def test_invalid_arguments_are_refused(arguments: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        OrthogonalConv2d(4, 4, 3, **arguments)


def test_images_that_do_not_fit_are_refused() -> None:
    layer = OrthogonalConv2d(4, 4, 3, dilation=2, padding_mode="circular")
    with pytest.raises(InputError, match=r"dilation \(2, 2\) needs sides divisible by it, not 7 x 8: resize"):
        layer(torch.zeros(1, 4, 7, 8))
    with pytest.raises(InputError, match=r"size 3 with dilation 2 does not fit a periodic image of 4 x 8: use"):
        layer(torch.zeros(1, 4, 4, 8))
    for x in (torch.zeros(1, 4, 6, 6, dtype=torch.int64), torch.zeros(1, 4, 6, 6, dtype=torch.complex64)):
        with pytest.raises(InputError, match=r"layers take floating-point numbers, not torch\.\w+: "):
            layer(x)


LAYERS = (OrthogonalConv2d, OrthogonalConv1d, OrthogonalConvTranspose2d, OrthogonalLinear)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("bias", [True, False])
def test_weight_and_bias_are_the_parameters_themselves(kind: type[nn.Module], bias: bool) -> None:
    layer = kind(6, 4, bias=bias) if kind is OrthogonalLinear else kind(6, 4, 3, bias=bias)
    assert {id(p) for p in layer.parameters()} == {id(p) for p in (layer.weight, layer.bias) if p is not None}
    assert layer.weight.shape[:2] == ((6, 4) if kind is OrthogonalConvTranspose2d else (4, 6)), "as in PyTorch"
    assert (layer.bias is not None) == bias
