"""Activations that sort, fold or cut off: their values, their Jacobians, and what is refused."""

import pytest
import torch
from layer_cases import jacobian
from torch import nn

from lotnet import Abs, FullSort, GroupSort, MaxMin, freeze
from lotnet.errors import InputError

NORM_PRESERVING = (GroupSort(1), GroupSort(2), GroupSort(3), FullSort(), Abs(), Abs(0.5), Abs(0.1))
CONTRACTING = (nn.ReLU(), nn.LeakyReLU(0.2), nn.LeakyReLU(-1.0), nn.Hardtanh(), nn.Hardtanh(-0.2, 0.0), nn.ReLU6())


def test_group_sort_sorts_each_group_of_channels() -> None:
    x = torch.randn(2, 6, 3, 4)
    assert torch.equal(GroupSort(2)(x), MaxMin()(x))
    assert torch.equal(GroupSort(1)(x), x)
    y = GroupSort(3)(x)
    for group in range(2):
        assert torch.equal(y[:, group::2], x[:, group::2].sort(dim=1, descending=True).values)
    assert torch.equal(FullSort()(x), GroupSort(6)(x))
    assert torch.equal(FullSort()(x[..., 0, 0]), GroupSort(6)(x)[..., 0, 0])  # vectors too


def test_abs_folds_a_fraction_of_the_channels_rounded_up() -> None:
    x = torch.randn(2, 5, 3, 4)
    for fraction, folded in ((1.0, 5), (0.5, 3), (0.4, 2), (0.01, 1)):
        y = Abs(fraction)(x)
        assert torch.equal(y[:, :folded], x[:, :folded].abs()) and torch.equal(y[:, folded:], x[:, folded:])


@pytest.mark.parametrize("layer", NORM_PRESERVING, ids=repr)
def test_jacobians_are_orthogonal_almost_everywhere(layer: nn.Module) -> None:
    x = torch.randn(6, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(jacobian(layer, x))
    assert torch.allclose(values, torch.ones_like(values), atol=1e-12)


@pytest.mark.parametrize("shape", ((6, 2, 3), (6,)))
@pytest.mark.parametrize("layer", NORM_PRESERVING + CONTRACTING, ids=repr)
def test_frozen_computes_the_same_and_is_one_lipschitz(layer: nn.Module, shape: tuple[int, ...]) -> None:
    frozen = freeze(nn.Sequential(layer), shape) if len(shape) == 3 else None
    x, y = torch.randn(2, 50, *shape, generator=torch.Generator().manual_seed(1))
    assert (layer(x) - layer(y)).norm() <= (x - y).norm() * (1 + 1e-6)
    if frozen is not None:
        assert torch.allclose(frozen(x), layer(x), atol=1e-6)
        assert 1 <= float(frozen.lipschitz_bound()) < 1 + 1e-15
    assert layer(x[:0]).shape == (0, *shape)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float64))
def test_activations_keep_the_dtype(dtype: torch.dtype) -> None:
    x = torch.randn(2, 6, 3, 3).to(dtype)
    for layer in NORM_PRESERVING:
        y = layer(x)
        assert y.dtype == dtype and torch.isfinite(y).all()


def test_bad_input() -> None:
    with pytest.raises(InputError, match=r"GroupSort\(4\) takes .* channels divisible by 4, not .*: choose a size"):
        GroupSort(4)(torch.zeros(1, 6, 2, 2))
    with pytest.raises(InputError, match=r"GroupSort\) does not take inputs of shape \(6, 2, 2\)"):
        freeze(nn.Sequential(GroupSort(4)), (6, 2, 2))
    with pytest.raises(InputError, match="size must be one whole number, at least 1, not 0"):
        GroupSort(0)
    for fraction in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(InputError, match="above 0 and at most 1"):
            Abs(fraction)
    for layer in (FullSort(), Abs()):
        with pytest.raises(InputError, match="add the batch"):
            layer(torch.zeros(8))
