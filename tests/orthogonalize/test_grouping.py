"""Orthogonalisation of all layers together, with schedules that follow the kernels."""

import pytest
import torch

from lotnet.layers import OrthogonalConv2d
from lotnet.linalg.polar import sigma_min
from lotnet.linalg.polynomials import min_sigma_for_length, schedule
from lotnet.models import ImageSpec, LipConvnet
from lotnet.orthogonalize.grouping import GroupedOrthogonalization
from lotnet.parametrizations import LOT

IMAGES = ImageSpec(3, 16, 16, 10, (0.5, 0.5, 0.5), 0.25)


def _layers(model: torch.nn.Module) -> list[OrthogonalConv2d]:
    return [m for m in model.modules() if isinstance(m, OrthogonalConv2d)]


def _conditions(model: torch.nn.Module) -> list[float]:
    lots = [layer.parametrization for layer in _layers(model)]
    return [lot.condition for lot in lots if isinstance(lot, LOT)]


def test_prepared_layers_compute_the_same_as_separate_ones() -> None:
    torch.manual_seed(0)
    model = LipConvnet(depth=15, channels=4).build(IMAGES).double().train()
    x = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    alone = model(x)
    alone.sum().backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    grouping = GroupedOrthogonalization(model, x[:1])
    grouping.prepare()
    together = model(x)
    together.sum().backward()
    assert torch.allclose(together, alone, atol=1e-10)
    for a, b in zip((p.grad for p in model.parameters() if p.grad is not None), expected, strict=True):
        assert torch.allclose(a, b, atol=1e-9)
    grouping.release()
    assert all(layer.prepared is None for layer in _layers(model))


def test_the_largest_singular_value_is_that_of_all_layers() -> None:
    torch.manual_seed(0)
    model = LipConvnet(depth=10, channels=4).build(IMAGES)
    grouping = GroupedOrthogonalization(model, torch.rand(1, 3, 16, 16))
    assert 1 - 1e-3 <= grouping.largest_singular_value() <= 1 + 1e-3
    with torch.no_grad():  # singular values far below one, too: the quick bound does not apply
        _layers(model)[0].weight.fill_(1.0)
    assert 1 - 1e-3 <= grouping.largest_singular_value() <= 1 + 1e-3


def test_schedules_follow_the_kernels() -> None:
    """Well-conditioned kernels get short schedules. When a kernel becomes ill-conditioned, its layer's schedule grows,
    up to the configured length."""
    torch.manual_seed(0)
    model = LipConvnet(depth=5, channels=8, options={"condition": 500.0}).build(IMAGES)
    grouping = GroupedOrthogonalization(model, torch.rand(1, 3, 16, 16))
    assert grouping.refresh()
    easy = _conditions(model)
    assert max(easy) <= 64
    assert not grouping.refresh(), "nothing has changed"
    layer = _layers(model)[0]
    with torch.no_grad():
        u, _, v = torch.linalg.svd(torch.randn(16, 12), full_matrices=False)
        layer.weight.zero_()
        layer.weight[:, :, 1, 1] = (u * torch.logspace(0, -2.3, 12)) @ v  # condition 200 at every frequency
    assert grouping.refresh()
    assert _conditions(model)[0] >= 200
    with torch.no_grad():
        layer.weight[:, :, 1, 1] = (u * torch.logspace(0, -5, 12)) @ v
    grouping.refresh()
    assert _conditions(model)[0] == 500


def _layer_and_grouping() -> tuple[OrthogonalConv2d, GroupedOrthogonalization]:
    layer = OrthogonalConv2d(8, 8, 3, parametrization=LOT(condition=1e9))
    return layer, GroupedOrthogonalization(torch.nn.Sequential(layer), torch.rand(1, 8, 6, 6))


def _set_singular_values(layer: OrthogonalConv2d, smallest: float) -> None:
    """Give every frequency the same singular values: one `smallest`, the others equal, scaled as `normalize` does."""
    channels = len(layer.weight)
    others = ((1 - smallest**8) / (channels - 1)) ** (1 / 8)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[:, :, 1, 1] = torch.diag(torch.tensor([smallest] + [others] * (channels - 1)))


def _length(layer: OrthogonalConv2d) -> int:
    assert isinstance(layer.parametrization, LOT)
    return len(schedule(sigma_min(len(layer.weight), layer.parametrization.condition), layer.parametrization.tolerance))


@pytest.mark.parametrize("length", (4, 5, 6, 7))
def test_schedules_allow_for_a_condition_one_and_a_half_times_as_large(length: int) -> None:
    layer, grouping = _layer_and_grouping()
    needed = 1.5 * min_sigma_for_length(length, 1e-4)
    _set_singular_values(layer, 1.001 * needed)
    grouping.refresh()
    assert _length(layer) == length
    _set_singular_values(layer, 0.999 * needed)
    grouping.refresh()
    assert _length(layer) == length + 1


def test_schedules_never_get_shorter() -> None:
    layer, grouping = _layer_and_grouping()
    assert not grouping.lengths.any()
    _set_singular_values(layer, 0.01)
    assert grouping.refresh()
    long = _length(layer)
    assert long > 4
    assert grouping.lengths.tolist() == [long]
    _set_singular_values(layer, 0.5)
    assert not grouping.refresh()
    assert _length(layer) == long


def test_schedules_are_restored_from_their_lengths() -> None:
    torch.manual_seed(0)
    model = LipConvnet(depth=10, channels=4).build(IMAGES)
    grouping = GroupedOrthogonalization(model, torch.rand(1, 3, 16, 16))
    with torch.no_grad():
        _layers(model)[0].weight.fill_(1.0)  # of rank one
    grouping.refresh()
    assert len(grouping.lengths.unique()) > 1
    twin = LipConvnet(depth=10, channels=4).build(IMAGES)
    GroupedOrthogonalization(twin, torch.rand(1, 3, 16, 16)).restore(grouping.lengths)
    pairs = zip(_layers(model), _layers(twin), strict=True)
    assert all(one.parametrization == other.parametrization for one, other in pairs)


@pytest.mark.parametrize("smallest", (0.5, 0.1, 0.02, 0.004))
def test_operators_stay_orthogonal_until_the_condition_grows_by_half(smallest: float) -> None:
    layer, grouping = _layer_and_grouping()
    _set_singular_values(layer, smallest)
    grouping.refresh()
    for worse in (1.0, 1.49):
        _set_singular_values(layer, smallest / worse)
        grouping.prepare()
        values = torch.linalg.svdvals(layer.operator(6, 6).transfers.detach())
        assert 1 - 1e-4 - 1e-5 <= values.min() <= values.max() <= 1 + 1e-5


def test_kernels_beyond_every_schedule_get_the_longest() -> None:
    layer, grouping = _layer_and_grouping()
    with torch.no_grad():
        layer.weight.zero_()
    grouping.refresh()
    assert _length(layer) == 8


def test_layers_without_pairs_of_frequencies_have_a_schedule() -> None:
    """2 x 2 images with circular padding have real frequencies only, so that with 256 channels the batch of complex
    frequencies is empty."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(OrthogonalConv2d(256, 256, 2, padding_mode="circular"))
    grouping = GroupedOrthogonalization(model, torch.rand(1, 256, 2, 2))
    assert grouping.refresh()
    assert _length(model[0]) == 4
