"""`OrthogonalConv1d`: the convolution of an image of one column, in networks that read sequences."""

import pytest
import torch
from convolution_cases import GRID, Case, sample
from layer_cases import dense, randomize
from torch import nn

from lotnet import (
    AveragePool,
    Centering,
    FrozenModel,
    GlobalAveragePool,
    LayerCentering,
    MaxMin,
    MaxPool,
    Normalize,
    NormalizedLinear,
    OrthogonalConv1d,
    certify,
    freeze,
)
from lotnet.errors import InputError
from lotnet.export import export

CASES = [case for case in GRID if isinstance(case.kernel_size, int) and isinstance(case.stride, int)]


def check(case: Case) -> None:
    layer = randomize(OrthogonalConv1d(4, 4 * case.strides[1], **case.arguments), seed=3)
    shape = (4, case.shape[2])
    recipe = layer.column.parametrization
    bounds = [recipe.lipschitz_bound((layer.kernel_size, 1), frozen) for frozen in (False, True)]
    trained = torch.linalg.svdvals(dense(layer.train(), shape, torch.float32).double())
    assert trained[0] <= bounds[0] + 1e-4
    frozen = layer.frozen(shape, torch.float64)
    assert frozen.fits(shape) and frozen.output_shape(shape) == (layer.out_channels, case.size[1])
    matrix = dense(frozen, shape)
    values = torch.linalg.svdvals(matrix)
    assert values[0] <= float(frozen.lipschitz_bound()) * (1 + 1e-14) <= bounds[1] + 1e-6
    assert (dense(layer.double().eval(), shape) - matrix).abs().max() < 1e-12
    if case.padding_mode == "circular" and recipe.orthogonal:
        assert values[-1] >= 1 - 1e-5


@pytest.mark.parametrize("case", sample(CASES), ids=str)
def test_singular_values_of_a_sample(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_singular_values(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("dilation", (1, 2, 3))
@pytest.mark.parametrize("k", (1, 2, 3, 4))
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_taps_are_aligned_as_in_pytorch(k: int, dilation: int) -> None:
    layer = OrthogonalConv1d(2, 2, k, dilation=dilation, bias=False).double().eval()
    plain = nn.Conv1d(2, 2, k, padding="same", dilation=dilation, bias=False).double()
    x = torch.randn(1, 2, 12, dtype=torch.float64)
    for tap in range(k):
        with torch.no_grad():
            for kernel in (layer.column.weight[..., 0], plain.weight):
                kernel.zero_()
                kernel[0, 1, tap], kernel[1, 0, tap] = 1, -1
        assert torch.allclose(layer(x), plain(x), atol=1e-9)


def test_a_network_of_sequences_is_frozen_and_certified(tmp_path) -> None:
    pools = (AveragePool(2), MaxPool(2), GlobalAveragePool())
    network = nn.Sequential(
        *(Normalize([0.1, 0.2], 0.3), OrthogonalConv1d(2, 8, 5, stride=2), MaxMin(), Centering(8)),
        *(OrthogonalConv1d(8, 8, 3, dilation=2, groups=2), LayerCentering(8), *pools, nn.Flatten(), Centering(8)),
        NormalizedLinear(8, 4),
    )
    randomize(network)
    x = torch.rand(5, 2, 16)
    network(x).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())
    network.eval()
    frozen = freeze(network, 16)
    assert frozen.input_shape == freeze(network, (2, 16)).input_shape == freeze(network, (16,)).input_shape == (2, 16)
    assert torch.allclose(frozen(x), network(x), atol=1e-4)
    assert float(frozen.lipschitz_bound()) < 1.001 / 0.3 * float(frozen.stages[-1].lipschitz_bound())
    certificates = certify(frozen, x)
    assert certificates.radii["float"].shape == (5,) and bool((certificates.radii["float"] > 0).any())
    frozen.save(tmp_path)
    assert torch.equal(FrozenModel.load(tmp_path)(x), frozen(x))


@pytest.mark.skipif(
    torch.__version__.startswith("2.11."), reason="its exporter fixes the batch size of images of one column"
)
def test_a_network_of_sequences_is_exported(tmp_path) -> None:
    network = randomize(
        nn.Sequential(OrthogonalConv1d(2, 4, 3), AveragePool(2), MaxPool(2), nn.Flatten(), NormalizedLinear(8, 3))
    )
    x = torch.rand(5, 2, 8)
    assert export(freeze(network, 8), tmp_path / "model.onnx", precision="float64", images=x).difference < 1e-12


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    (
        ({"kernel_size": (3, 3)}, r"kernel_size must be one whole number, at least 1, not \(3, 3\)"),
        ({"stride": 0}, r"stride must be one whole number, at least 1, not 0"),
        ({"padding": 2}, r'padding must keep the size of the image, .*, not 2: use padding="same" or 1'),
        ({"padding_mode": "reflect"}, r"'reflect' copies pixels at the border"),
        ({"groups": 3}, r"cannot be divided into 3 groups"),
    ),
)
def test_invalid_arguments_are_refused(arguments: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        OrthogonalConv1d(**{"in_channels": 2, "out_channels": 4, "kernel_size": 3} | arguments)


def test_sequences_that_do_not_fit_are_refused() -> None:
    layer = OrthogonalConv1d(2, 4, 3, stride=2)
    with pytest.raises(InputError, match=r"sequences of length 7 cannot be downsampled by the stride 2: pad them"):
        layer(torch.zeros(1, 2, 7))
    with pytest.raises(InputError, match=r"sequences with 2 channels \(b, 2, n\), not .*: set in_channels to match"):
        layer(torch.zeros(1, 3, 8))
    with pytest.raises(InputError, match=r"one sequence is a batch of one, x\[None\]"):
        layer(torch.zeros(2, 8))
    for x in (torch.zeros(1, 2, 8, dtype=torch.int64), torch.zeros(1, 2, 8, dtype=torch.complex64)):
        with pytest.raises(InputError, match=r"layers take floating-point numbers"):
            layer(x)
    assert layer(torch.zeros(0, 2, 8)).shape == (0, 4, 4)
    with pytest.raises(InputError, match=r"image_size is a length, \(length,\) or \(channels, length\), not 'x'"):
        freeze(nn.Sequential(layer), "x")  # type: ignore[arg-type]
