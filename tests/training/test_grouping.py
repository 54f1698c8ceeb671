"""Orthogonalisation of all layers together, with schedules that follow the kernels."""

import pytest
import torch

from lotnet.layers import OrthogonalConv2d
from lotnet.linalg.polar import largest_singular_value, lower_end
from lotnet.linalg.polynomials import schedule
from lotnet.models import Images, LipConvnet
from lotnet.parametrizations import LOT
from lotnet.training.grouping import GroupedOrthogonalization

IMAGES = Images(3, 16, 16, 10, (0.5, 0.5, 0.5), 0.25)


def _conditions(model: torch.nn.Module) -> list[float]:
    layers = [m for m in model.modules() if isinstance(m, OrthogonalConv2d)]
    return [layer.parametrization.condition for layer in layers if isinstance(layer.parametrization, LOT)]


def test_prepared_layers_compute_what_they_compute_alone() -> None:
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
    assert all(layer.prepared is None for layer in model.modules() if isinstance(layer, OrthogonalConv2d))


def test_the_largest_singular_value_is_bounded_or_computed() -> None:
    torch.manual_seed(0)
    model = LipConvnet(depth=10, channels=4).build(IMAGES)
    grouping = GroupedOrthogonalization(model, torch.rand(1, 3, 16, 16))
    assert 1 - 1e-3 <= grouping.largest_singular_value() <= 1 + 1e-3
    with torch.no_grad():  # singular values far below one, too: the quick bound says nothing
        next(m for m in model.modules() if isinstance(m, OrthogonalConv2d)).weight.fill_(1.0)
    assert 1 - 1e-3 <= grouping.largest_singular_value() <= 1 + 1e-3


@pytest.mark.parametrize("smallest", (0.9, 1e-3, 0.0))
@pytest.mark.parametrize("largest", (0.5, 1.0, 1.3))
@pytest.mark.parametrize("shape", ((40, 40), (30, 50), (50, 30)))
def test_the_bound_is_above_the_largest_singular_value_and_next_to_it(
    shape: tuple[int, int], largest: float, smallest: float
) -> None:
    torch.manual_seed(0)
    u, s, vh = torch.linalg.svd(torch.randn(3, *shape, dtype=torch.float64), full_matrices=False)
    s = s / s.amax() * largest
    s[:, -1] *= smallest
    s[0, :] *= smallest  # a whole matrix of them, zero among these
    s[1, : len(s[1]) // 2] = largest  # flat, where powers overshoot most
    bound = largest_singular_value((u * s[:, None]) @ vh)
    assert largest * (1 - 1e-12) <= bound <= largest * (1 + 1e-4)


def test_schedules_follow_the_kernels() -> None:
    """Easy kernels get short schedules; when one gets worse its layer's grows again, up to what was configured."""
    torch.manual_seed(0)
    model = LipConvnet(depth=5, channels=8, options={"condition": 500.0}).build(IMAGES)
    grouping = GroupedOrthogonalization(model, torch.rand(1, 3, 16, 16))
    assert grouping.refresh()
    easy = _conditions(model)
    assert max(easy) <= 64
    assert not grouping.refresh(), "nothing has changed"
    layer = next(m for m in model.modules() if isinstance(m, OrthogonalConv2d))
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


def test_a_schedule_allows_for_all_that_its_length_does() -> None:
    """So that kernels which change a little do not change it, and a recorded graph lives on."""
    torch.manual_seed(0)
    model = LipConvnet(depth=5, channels=8).build(IMAGES)
    grouping = GroupedOrthogonalization(model, torch.rand(1, 3, 16, 16))
    grouping.refresh()
    for layer, geometry in grouping.layers:
        lot, m = layer.parametrization, min(geometry.out_channels, geometry.in_channels)
        assert isinstance(lot, LOT)
        length = len(schedule(lower_end(m, lot.condition), lot.tolerance))
        assert len(schedule(lower_end(m, lot.condition * 1.001), lot.tolerance)) == length + 1
