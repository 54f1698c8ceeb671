"""Orthogonalisation of all layers together, with schedules that follow the kernels."""

import torch

from lotnet.layers import OrthogonalConv2d
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
