"""`Normalize`, `ConvexResidual`, `InvertibleDownsampling`, `Centering` and the pools."""

import math

import pytest
import torch
import torch.nn.functional as F
from layer_cases import jacobian, largest_singular_value, randomize
from torch import nn

from lotnet import (
    AveragePool,
    Centering,
    ConvexResidual,
    GlobalAveragePool,
    InvertibleDownsampling,
    InvertibleUpsampling,
    LayerCentering,
    MaxMin,
    MaxPool,
    Normalize,
    OrthogonalConv2d,
)
from lotnet.errors import InputError


def test_normalize_by_channel() -> None:
    layer = Normalize([0.1, 0.2], [0.5, 0.25])
    x = torch.rand(3, 2, 4, 5)
    assert torch.allclose(layer(x)[:, 0], (x[:, 0] - 0.1) / 0.5)
    assert torch.allclose(layer(x)[:, 1], (x[:, 1] - 0.2) / 0.25)
    assert not list(layer.parameters())
    assert float(layer.frozen((2, 4, 5), torch.float32).lipschitz_bound()) == pytest.approx(4)  # the smaller std


def test_normalize_with_one_std() -> None:
    layer = Normalize([0.1, 0.2, 0.3], 0.25)
    assert layer.std.tolist() == [0.25] * 3
    assert "0.25" in repr(layer)


@pytest.mark.parametrize("std", (0.0, -1.0, math.nan, math.inf, [0.5], [0.5, 0.0]))
def test_normalize_needs_a_positive_std(std: float | list[float]) -> None:
    with pytest.raises(InputError, match="one positive std, or one for each entry of mean"):
        Normalize([0.0, 0.0], std)


@pytest.mark.parametrize("mean", (0.5, [], [math.nan], [[0.5]]))
def test_normalize_needs_a_list_of_means(mean: float | list[float]) -> None:
    with pytest.raises(InputError, match=r"a finite mean for each channel, .* pass a list"):
        Normalize(mean, 0.5)


def test_normalize_takes_tensors() -> None:
    layer = Normalize(torch.tensor([0.1, 0.2]), torch.tensor(0.25))
    assert layer.std.tolist() == [0.25] * 2 and layer.in_channels == 2


def test_normalize_names_the_images_it_accepts() -> None:
    for shape in ((1, 1, 4, 4), (3, 4, 4), (1, 4, 4, 3)):
        with pytest.raises(InputError, match=r"images with 3 channels"):
            Normalize([0.0] * 3, 0.5)(torch.zeros(shape))
    with pytest.raises(InputError, match="divide 8-bit images by 255"):
        Normalize([0.0] * 3, 0.5)(torch.zeros(1, 3, 4, 4, dtype=torch.uint8))


@pytest.mark.parametrize("mix", (0.1, 0.5, 0.9))
def test_convex_residual_mixes(mix: float) -> None:
    block = randomize(OrthogonalConv2d(2, 2, 3)).eval()
    layer = ConvexResidual(block, mix).eval()
    x = torch.randn(1, 2, 6, 6)
    assert torch.allclose(layer(x), mix * x + (1 - mix) * block(x), atol=1e-6)
    assert "logit" in layer.state_dict() and "logit" not in dict(layer.named_parameters())


def test_a_trainable_mix_learns_and_stays_between_zero_and_one() -> None:
    layer = ConvexResidual(OrthogonalConv2d(2, 2, 3), 0.3, trainable=True)
    assert "logit" in dict(layer.named_parameters())
    randomize(layer.block)
    x = torch.randn(1, 2, 6, 6)
    layer(x).square().sum().backward()
    assert layer.logit.grad.abs() > 0
    with torch.no_grad():
        layer.logit.fill_(50.0)
    assert torch.allclose(layer(x), x, atol=1e-5)
    assert float(layer.frozen((2, 6, 6), torch.float32).lipschitz_bound()) < 1 + 1e-6


def test_a_residual_with_a_shortcut() -> None:
    block = nn.Sequential(OrthogonalConv2d(2, 8, 3, 2), MaxMin())
    layer = ConvexResidual(block, shortcut=InvertibleDownsampling(2)).eval()
    x = torch.randn(1, 2, 6, 6)
    assert torch.allclose(layer(x), (F.pixel_unshuffle(x, 2) + block(x)) / 2, atol=1e-6)
    assert torch.allclose(layer.frozen((2, 6, 6), torch.float32)(x), layer(x), atol=1e-4)
    with pytest.raises(InputError, match=r"adds shapes .* give it a shortcut"):
        ConvexResidual(block).frozen((2, 6, 6), torch.float32)
    for channels in (8, 1):  # one would be broadcast
        with pytest.raises(InputError, match=r"adds shapes .* give it a shortcut"):
            ConvexResidual(OrthogonalConv2d(2, channels, 3))(x)


@pytest.mark.parametrize("mix", (0.0, 1.0, -0.5, math.nan))
def test_a_mix_lies_strictly_between(mix: float) -> None:
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        ConvexResidual(nn.Identity(), mix)


@pytest.mark.parametrize("stride", (1, 2, 3))
def test_invertible_downsampling_moves_entries(stride: int) -> None:
    x = torch.randn(2, 3, 6, 12)
    layer = InvertibleDownsampling(stride)
    y = layer(x)
    assert y.shape == (2, 3 * stride**2, 6 // stride, 12 // stride)
    assert torch.equal(F.pixel_shuffle(y, stride), x)
    assert torch.equal(layer.frozen((3, 6, 12), torch.float32)(x), y)


def test_downsampling_needs_divisible_sides() -> None:
    with pytest.raises(InputError, match=r"images of 5 x 6 cannot be downsampled by 2: resize"):
        InvertibleDownsampling(2)(torch.zeros(1, 1, 5, 6))
    with pytest.raises(InputError, match=r"takes batches of images .* one image is a batch of one"):
        InvertibleDownsampling(2)(torch.zeros(1, 6, 6))


@pytest.mark.parametrize("kind", (AveragePool, MaxPool))
@pytest.mark.parametrize("size", (0, -2, (2, 2), 2.0))
def test_a_window_size_is_one_positive_integer(kind: type[nn.Module], size: object) -> None:
    with pytest.raises(InputError, match="must be one whole number, at least 1"):
        kind(size)


@pytest.mark.parametrize("stride", (0, -2, (2, 2, 2), 2.0))
def test_a_stride_is_one_or_two_positive_integers(stride: object) -> None:
    with pytest.raises(InputError, match="stride must be one or two whole numbers, at least 1"):
        InvertibleDownsampling(stride)  # type: ignore[arg-type]


def test_a_stride_may_differ_along_the_axes() -> None:
    x = torch.randn(2, 3, 4, 6)
    y = InvertibleDownsampling((2, 3))(x)
    assert y.shape == (2, 18, 2, 2)
    assert torch.equal(y[:, :6].reshape(2, 2, 3, 2, 2)[:, 1, 2], x[:, 0, 1::2, 2::3])
    assert torch.equal(InvertibleUpsampling((2, 3))(y), x)


def test_pools_and_centring_of_sequences() -> None:
    x = torch.randn(2, 4, 7)
    assert torch.allclose(AveragePool(3)(x), x[..., :6].unflatten(2, (2, 3)).sum(dim=3) / 3**0.5, atol=1e-6)
    assert torch.equal(MaxPool(3)(x), x[..., :6].unflatten(2, (2, 3)).amax(dim=3))
    assert torch.allclose(GlobalAveragePool()(x)[..., 0], x.sum(dim=2) / 7**0.5, atol=1e-6)
    assert torch.allclose(LayerCentering(4)(x), x - x.mean(dim=2, keepdim=True), atol=1e-6)
    assert torch.allclose(Centering(4)(x), x - x.mean(dim=(0, 2), keepdim=True), atol=1e-6)
    vectors = torch.randn(5, 4)
    assert torch.allclose(Centering(4)(vectors), vectors - vectors.mean(dim=0), atol=1e-6)
    assert torch.allclose(Normalize([0.5] * 4, 2.0)(x), (x - 0.5) / 2)


@pytest.mark.parametrize("kind", (AveragePool, MaxPool))
def test_a_pool_needs_a_window(kind: type[nn.Module]) -> None:
    with pytest.raises(InputError, match=r"images of 6 x 2 have no window of 3 x 3: use a smaller size"):
        kind(3)(torch.zeros(1, 1, 6, 2))


def test_centering_uses_the_batch_in_training_and_a_constant_in_evaluation() -> None:
    layer = Centering(3, momentum=0.25)
    x = torch.randn(8, 3, 4, 4) + torch.tensor([1.0, -2.0, 5.0])[:, None, None]
    mean = x.mean(dim=(0, 2, 3))
    assert torch.allclose(layer(x).mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(layer.running_mean, 0.25 * mean)
    layer(x)
    assert torch.allclose(layer.running_mean, (0.25 + 0.75 * 0.25) * mean)
    layer.eval()
    kept = layer.running_mean.clone()
    shifts = layer(x) - x
    assert torch.allclose(shifts, -kept[:, None, None].expand_as(x), atol=1e-5)  # a constant: 1-Lipschitz
    assert torch.equal(layer.running_mean, kept)


def test_centering_adds_its_bias_and_refuses_other_channels() -> None:
    layer = Centering(2).eval()
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([1.0, -1.0]))
    x = torch.randn(1, 2, 3, 3)
    assert torch.allclose(layer(x), x + torch.tensor([1.0, -1.0])[:, None, None])
    for shape in ((1, 1, 3, 3), (1, 3), (2,)):
        with pytest.raises(InputError, match=r"images with 2 channels.*: set channels to match"):
            layer(torch.zeros(shape))


@pytest.mark.parametrize("size", (1, 2, 3))
def test_pools(size: int) -> None:
    x = torch.randn(2, 3, 6, 7)
    average, largest = AveragePool(size)(x), MaxPool(size)(x)
    assert average.shape == largest.shape == (2, 3, 6 // size, 7 // size)
    window = x[0, 0, :size, :size]
    assert torch.allclose(average[0, 0, 0, 0], window.sum() / size, atol=1e-6)
    assert largest[0, 0, 0, 0] == window.max()
    assert repr(AveragePool(size)) == f"AveragePool(size={size})"


def test_pools_have_lipschitz_constant_exactly_one() -> None:
    x = torch.randn(1, 4, 4, dtype=torch.float64)
    assert largest_singular_value(jacobian(AveragePool(2), x)) == pytest.approx(1, abs=1e-12)
    assert largest_singular_value(jacobian(MaxPool(2), x)) == pytest.approx(1, abs=1e-12)
