"""Pools of whole images and l2 norms, layer centring, concatenated branches, shifts and upsampling."""

import math

import pytest
import torch
import torch.nn.functional as F
from layer_cases import jacobian, largest_singular_value, randomize
from torch import nn

from lotnet import (
    ChannelShift,
    Concatenation,
    GlobalAveragePool,
    GlobalNormPool,
    InvertibleDownsampling,
    InvertibleUpsampling,
    LayerCentering,
    MaxMin,
    NormPool,
    OrthogonalConv2d,
    freeze,
)
from lotnet.errors import InputError

LAYERS: tuple[nn.Module, ...] = (
    GlobalAveragePool(),
    GlobalNormPool(),
    NormPool(2),
    NormPool(3),
    LayerCentering(12),
    ChannelShift(3),
    ChannelShift(3, "circular"),
    InvertibleUpsampling(2),
    Concatenation(nn.Identity(), MaxMin()),
    Concatenation(NormPool(2), NormPool(2), nn.Sequential(InvertibleDownsampling(2), MaxMin())),
)


def image(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("layer", LAYERS, ids=repr)
def test_the_lipschitz_constant_is_exactly_one(layer: nn.Module) -> None:
    for seed in range(3):
        norm = largest_singular_value(jacobian(layer.double(), image(12, 4, 6, seed=seed)))
        assert norm == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("layer", LAYERS, ids=repr)
def test_frozen_computes_the_same(layer: nn.Module) -> None:
    layer = randomize(layer).float().eval()
    frozen = freeze(nn.Sequential(layer), (12, 4, 6))
    x = image(5, 12, 4, 6).float()
    assert torch.allclose(frozen(x), layer(x), atol=1e-5)
    assert float(frozen.lipschitz_bound()) == pytest.approx(1, abs=1e-6)
    assert layer(x[:0]).shape == frozen(x[:0]).shape == (0, *layer(x).shape[1:])


def test_global_average_pool() -> None:
    x = image(2, 3, 4, 5)
    assert torch.allclose(GlobalAveragePool()(x), x.mean(dim=(2, 3), keepdim=True) * math.sqrt(20))


def test_norm_pools_leave_out_what_fills_no_window() -> None:
    x = image(2, 3, 5, 7)
    y = NormPool(2)(x)
    assert y.shape == (2, 3, 2, 3)
    assert torch.allclose(y[0, 1, 1, 2], x[0, 1, 2:4, 4:6].norm())
    assert torch.allclose(GlobalNormPool()(x)[..., 0, 0], x.flatten(2).norm(dim=2))
    assert repr(NormPool(2)) == "NormPool(size=2)"


@pytest.mark.parametrize("scale", (0.0, 1e-30, 1e-20, 1.0))
@pytest.mark.parametrize("layer", (NormPool(2), GlobalNormPool()), ids=repr)
def test_the_gradient_of_a_norm_is_finite_at_and_near_zero(layer: nn.Module, scale: float) -> None:
    x = (scale * image(1, 2, 4, 4)).float()
    x[0, 0] = 0
    x.requires_grad_()
    layer(x).sum().backward()
    assert torch.isfinite(x.grad).all() and (x.grad[0, 0] == 0).all()
    assert x.grad.norm() <= math.sqrt(2 * 4) * (1 + 1e-6)


def test_squares_that_overflow_have_no_bound() -> None:
    frozen = NormPool(2).frozen((1, 2, 2), torch.float32)
    assert float(frozen.rounding_bound(0.0, 1e10)) < math.inf
    assert float(frozen.rounding_bound(0.0, 1e20)) == math.inf


def test_layer_centering_removes_each_mean() -> None:
    layer = LayerCentering(3)
    x = image(4, 3, 5, 2) + 7
    assert torch.allclose(layer.double()(x).mean(dim=(2, 3)), torch.zeros(4, 3, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(layer(layer(x)), layer(x))  # a projection
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert torch.allclose(layer(x).mean(dim=(0, 2, 3)), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    for shape in ((1, 1, 3, 3), (1, 3)):
        with pytest.raises(InputError, match=r"images with 3 channels.*: set channels to match"):
            layer(torch.zeros(shape))


@pytest.mark.parametrize("padding_mode", ("zeros", "circular"))
@pytest.mark.parametrize("k", (1, 3, 5))
def test_a_channel_shift_is_a_convolution_with_deltas(k: int, padding_mode: str) -> None:
    c = k * k + 1
    x = image(2, c, 6, 5)
    kernel = torch.zeros(c, 1, k, k, dtype=torch.float64)
    for channel in range(c):
        tap = max(channel - 1, 0)  # the first group has the channel that is left over
        kernel[channel, 0, tap // k, tap % k] = 1
    padded = F.pad(x, (k // 2,) * 4, mode="circular" if padding_mode == "circular" else "constant")
    assert torch.equal(ChannelShift(k, padding_mode)(x), F.conv2d(padded, kernel, groups=c))


@pytest.mark.parametrize("stride", (1, 2, 3))
def test_upsampling_inverts_downsampling(stride: int) -> None:
    x = image(2, 3, 6, 12)
    y = InvertibleDownsampling(stride)(x)
    assert torch.equal(InvertibleUpsampling(stride)(y), x)
    assert torch.equal(InvertibleUpsampling(stride)(y), F.pixel_shuffle(y, stride))


def test_concatenation_divides_by_the_root_of_the_number_of_branches() -> None:
    first, second = (randomize(OrthogonalConv2d(2, c, 3), seed=c).eval() for c in (3, 4))
    x = torch.randn(2, 2, 5, 5)
    both = torch.cat((first(x), second(x)), dim=1)
    assert torch.allclose(Concatenation(first, second)(x), both / math.sqrt(2))
    loose = Concatenation(first, second, scaled=False)
    assert torch.allclose(loose(x), both)
    assert float(loose.frozen((2, 5, 5), torch.float32).lipschitz_bound()) == pytest.approx(math.sqrt(2), abs=1e-5)
    assert "scaled=False" in repr(loose)


def test_bad_input() -> None:
    strided = Concatenation(nn.Identity(), InvertibleDownsampling(2))
    for run in (lambda: strided(torch.zeros(1, 2, 4, 4)), lambda: strided.frozen((2, 4, 4), torch.float32)):
        with pytest.raises(InputError, match=r"cannot be concatenated along the channels: give them equal strides"):
            run()
    with pytest.raises(InputError, match="needs branches"):
        Concatenation()
    with pytest.raises(InputError, match="branch 1 is a GELU, for which lotnet has no proved bound"):
        Concatenation(nn.Identity(), nn.GELU()).frozen((2, 4, 4), torch.float32)
    with pytest.raises(InputError, match=r"6 channels cannot be upsampled by 2: make them a multiple of 4"):
        InvertibleUpsampling(2)(torch.zeros(1, 6, 4, 4))
    with pytest.raises(InputError, match=r"needs an odd kernel_size, not 2"):
        ChannelShift(2)
    with pytest.raises(InputError, match=r"needs at least 9 channels"):
        ChannelShift(3)(torch.zeros(1, 8, 4, 4))
    with pytest.raises(InputError, match=r"padding_mode 'reflect' copies pixels"):
        ChannelShift(3, "reflect")
    with pytest.raises(InputError, match=r"images of 6 x 2 have no window of 3 x 3: use a smaller size"):
        NormPool(3)(torch.zeros(1, 1, 6, 2))
    for layer in (GlobalNormPool(), NormPool(1), InvertibleUpsampling(1), ChannelShift(1)):
        with pytest.raises(InputError, match="one image is a batch of one"):
            layer(torch.zeros(3, 4, 4))
    with pytest.raises(InputError, match="one image is a batch of one"):
        GlobalAveragePool()(torch.zeros(4, 4))
