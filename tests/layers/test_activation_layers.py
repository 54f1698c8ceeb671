"""`MaxMin` and `Householder`: continuous, norm-preserving, 1-Lipschitz, with rounded angles too."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import jacobian, largest_singular_value
from torch import Tensor, nn

from lotnet import Householder, MaxMin
from lotnet.errors import InputError

ANGLES = [0.0, math.pi / 2, math.pi, -math.pi, 2 * math.pi, math.nextafter(2 * math.pi, 0), 4 * math.pi, 1e-8, 1e4]
angles = st.one_of(st.sampled_from(ANGLES), st.floats(-20, 20))
coordinates = st.floats(-10, 10, width=32)


def on_pairs(order: int, *values: float, dtype: torch.dtype = torch.float32) -> Householder:
    layer = Householder(2, order).to(dtype)
    with torch.no_grad():
        layer.angles.copy_(torch.tensor(values, dtype=dtype)[:, None])
    return layer


def pair(a: float, b: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor([a, b], dtype=dtype)[None, :, None, None]


def test_max_min_sorts_each_pair_of_channels() -> None:
    x = torch.randn(2, 6, 3, 4)
    y = MaxMin()(x)
    assert torch.equal(y[:, :3], x[:, :3].maximum(x[:, 3:]))
    assert torch.equal(y[:, 3:], x[:, :3].minimum(x[:, 3:]))
    assert torch.equal(MaxMin()(x.flatten(2)[..., 0]), y.flatten(2)[..., 0])  # vectors too


def test_order_one_starts_as_max_min() -> None:
    x = torch.randn(2, 6, 3, 4)
    assert torch.allclose(Householder(6)(x), MaxMin()(x), atol=1e-6)


def test_order_two_does_not_start_as_order_one() -> None:
    x = torch.randn(64, 2, 1, 1)
    first, second = Householder(2, 1)(x), Householder(2, 2)(x)
    assert (first - second).abs().max() > 0.1  # the second reflection has an effect from the start
    layer = Householder(2, 2)
    layer(x).mul(torch.randn(64, 2, 1, 1)).sum().backward()
    assert (layer.angles.grad.abs() > 1e-3).all()  # and both angles learn


@pytest.mark.parametrize("order", (1, 2))
@pytest.mark.parametrize("angle", ANGLES)
def test_every_region_is_covered_at_special_angles(angle: float, order: int) -> None:
    """Published code picks a branch by comparing angles, and picks none when an angle rounds to 2 pi."""
    layer = on_pairs(order, *([angle] * order))
    turns = torch.linspace(0, 2 * math.pi, 721)
    z = torch.stack((turns.cos(), turns.sin()), dim=1)[:, :, None, None]
    assert torch.allclose(layer(z).norm(dim=1), torch.ones(721, 1, 1), atol=1e-5)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 2), angles, angles, coordinates, coordinates, coordinates, coordinates)
def test_one_lipschitz_and_norm_preserving(
    order: int, first: float, second: float, a: float, b: float, c: float, d: float
) -> None:
    layer = on_pairs(order, *(first, second)[:order])
    frozen = layer.frozen((2, 1, 1), torch.float32)
    x, y = pair(a, b), pair(c, d)
    slack = 1e-5 * (1 + float(x.norm() + y.norm()))
    assert (layer(x) - layer(y)).norm() <= (x - y).norm() + slack
    assert abs(layer(x).norm() - x.norm()) <= slack
    assert torch.allclose(frozen(x), layer(x), atol=slack)
    assert 1 <= frozen.lipschitz_bound() < 1 + 1e-6


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 2), angles, angles, st.floats(0, 2 * math.pi))
def test_continuous_across_every_line(order: int, first: float, second: float, direction: float) -> None:
    """The values on both sides of a line where a reflection begins are equal."""
    layer = on_pairs(order, *(first, second)[:order], dtype=torch.float64)
    lines = [direction, *(angle / 2 for angle in layer.angles.flatten().tolist())]
    for line in lines:
        for turn in (0, math.pi):
            before, after = (
                pair(math.cos(line + turn + e), math.sin(line + turn + e), torch.float64) for e in (-1e-9, 1e-9)
            )
            assert (layer(before) - layer(after)).norm() <= 2e-9 + 1e-12


@pytest.mark.parametrize("activation", (MaxMin(), Householder(4), Householder(4, order=2)))
def test_jacobians_are_orthogonal_almost_everywhere(activation: nn.Module) -> None:
    for seed in range(5):
        x = torch.randn(4, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        values = torch.linalg.svdvals(jacobian(activation.double(), x))
        assert torch.allclose(values, torch.ones_like(values), atol=1e-12)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float64))
def test_activations_keep_the_dtype(dtype: torch.dtype) -> None:
    x = torch.randn(2, 4, 3, 3).to(dtype)
    for layer in (MaxMin(), Householder(4), Householder(4, order=2)):
        y = layer(x)
        assert y.dtype == dtype and torch.isfinite(y).all()


def test_rounded_normals_are_counted_in_the_bound() -> None:
    frozen = Householder(4).frozen((4, 1, 1), torch.float32)
    frozen.normals.mul_(1.1)
    assert float(frozen.lipschitz_bound()) == pytest.approx(2 * 1.1**2 - 1, rel=1e-6)
    at_reflection = jacobian(frozen, -frozen.normals.flatten()[:, None, None])
    reflected = jacobian(frozen, frozen.normals.flatten()[:, None, None])
    assert largest_singular_value(at_reflection) <= frozen.lipschitz_bound()
    assert 1.4 < largest_singular_value(reflected) <= frozen.lipschitz_bound() * (1 + 1e-6)


def test_bad_input() -> None:
    with pytest.raises(InputError, match=r"pairs channels and cannot take 3: use an even number"):
        MaxMin()(torch.zeros(1, 3, 2, 2))
    with pytest.raises(InputError, match=r"takes 8 channels, not a tensor of shape .*: set channels to match"):
        Householder(8)(torch.zeros(1, 2, 3, 3))  # would be broadcast, a fourfold copy
    for layer in (MaxMin(), Householder(8)):
        with pytest.raises(InputError, match=r"not a tensor of shape \(8,\)"):
            layer(torch.zeros(8))
    with pytest.raises(InputError, match="channels must be one whole number, at least 1, not 0"):
        Householder(0)
    for channels, order in ((3, 1), (4, 3), (4, 0)):
        with pytest.raises(InputError, match="even number of channels and order 1 or 2"):
            Householder(channels, order)
