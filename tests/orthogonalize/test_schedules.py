"""Schedules follow the measured singular values of the kernels."""

import pytest
import torch

from lotnet.kernels import dispatch
from lotnet.layers import OrthogonalConv2d
from lotnet.layers.trace import trace_geometries
from lotnet.linalg.polar import gradient_sigma_min, sigma_min
from lotnet.linalg.polynomials import schedule
from lotnet.linalg.sylvester import steps
from lotnet.models import ImageSpec, LipConvnet
from lotnet.orthogonalize import schedules
from lotnet.orthogonalize.grouping import largest_singular_value, with_settings
from lotnet.parametrizations import LOT
from lotnet.parametrizations.lot import operators

IMAGES = ImageSpec(3, 16, 16, 10, (0.5, 0.5, 0.5), 0.25)


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "products_are_cheap", lambda x: True)


def network(depth: int = 5, channels: int = 4, **options: float) -> schedules.Layers:
    torch.manual_seed(0)
    model = LipConvnet(depth=depth, channels=channels, options=options).build(IMAGES)
    return list(trace_geometries(model, torch.rand(1, 3, 16, 16)).items())


def one_layer(condition: float = 1e9) -> schedules.Layers:
    layer = OrthogonalConv2d(8, 8, 3, parametrization=LOT(condition=condition))
    return [(layer, layer.geometry(6, 6))]


def set_singular_values(layers: schedules.Layers, smallest: float) -> None:
    """Give every frequency the same singular values: one `smallest`, the others equal, scaled as `normalize` does."""
    layer = layers[0][0]
    others = ((1 - smallest**8) / (len(layer.weight) - 1)) ** (1 / 8)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[:, :, 1, 1] = torch.diag(torch.tensor([smallest] + [others] * (len(layer.weight) - 1)))


def smallest_sigma(layers: schedules.Layers) -> float:
    return float(schedules.lower_ends(layers)[0])


def length(layers: schedules.Layers) -> int:
    layer, geometry = layers[0]
    lot = schedules.settings(layer, geometry)
    return len(schedule(sigma_min(len(layer.weight), lot.condition), lot.tolerance))


def test_layers_have_their_own_settings_until_they_are_measured() -> None:
    layers = one_layer()
    assert schedules.settings(*layers[0]) is layers[0][0].parametrization
    assert not schedules.lower_ends(layers).any()
    assert schedules.measure(layers)
    assert schedules.settings(*layers[0]).condition < 10
    assert not schedules.measure(layers), "nothing has changed"


def test_the_largest_singular_value_is_that_of_all_layers() -> None:
    layers = network(depth=10)
    assert 1 - 1e-3 <= largest_singular_value(layers) <= 1 + 1e-3
    with torch.no_grad():  # singular values far below one, too: the quick bound does not apply
        layers[0][0].weight.fill_(1.0)
    assert 1 - 1e-3 <= largest_singular_value(layers) <= 1 + 1e-3


def test_no_schedule_is_longer_than_its_layer_allows() -> None:
    layers = network(channels=8, condition=500.0)
    schedules.measure(layers)
    assert max(schedules.settings(*layer).condition for layer in layers) <= 64
    layer = layers[0][0]
    u, _, v = torch.linalg.svd(torch.randn(16, 12), full_matrices=False)
    for spread, expected in ((-2.3, 200), (-5.0, 500)):
        with torch.no_grad():
            layer.weight.zero_()
            layer.weight[:, :, 1, 1] = (u * torch.logspace(0, spread, 12)) @ v
        schedules.measure(layers)
        assert expected <= schedules.settings(*layers[0]).condition <= 500


@pytest.mark.parametrize(
    ("smallest", "polynomials", "gradient"), [(0.46, 3, 5), (0.2, 4, 7), (0.1, 4, 10), (0.04, 5, 16)]
)
def test_well_conditioned_kernels_need_few_steps(smallest: float, polynomials: int, gradient: int) -> None:
    layers = one_layer()
    set_singular_values(layers, smallest)
    schedules.measure(layers)
    lot, rows = schedules.settings(*layers[0]), len(layers[0][0].weight)
    assert length(layers) == polynomials
    assert steps(gradient_sigma_min(rows, sigma_min(rows, lot.condition)), 1e-2) == gradient


@pytest.mark.parametrize("smallest", (0.3, 0.05, 0.004))
def test_a_lower_end_falls_when_the_margin_is_used_up(smallest: float) -> None:
    layers = one_layer()
    set_singular_values(layers, smallest)
    schedules.measure(layers)
    lower = smallest_sigma(layers)
    assert smallest / 1.47 <= lower <= smallest / 1.44
    set_singular_values(layers, 1.001 * 1.25 * lower)
    assert not schedules.measure(layers)
    set_singular_values(layers, 0.999 * 1.25 * lower)
    assert schedules.measure(layers)
    assert smallest_sigma(layers) == pytest.approx(1.25 * lower / 1.45, rel=0.02)


def test_lower_ends_never_rise() -> None:
    layers = one_layer()
    set_singular_values(layers, 0.01)
    assert schedules.measure(layers)
    low = smallest_sigma(layers)
    set_singular_values(layers, 0.5)
    assert not schedules.measure(layers)
    assert smallest_sigma(layers) == low < 0.01


def test_lower_ends_are_restored() -> None:
    layers, twins = network(depth=10), network(depth=10)
    with torch.no_grad():
        layers[0][0].weight.fill_(1.0)  # of rank one
    schedules.measure(layers)
    stored = schedules.lower_ends(layers)
    assert len(stored.unique()) > 1
    schedules.restore(twins, stored)
    assert [schedules.settings(*one) for one in layers] == [schedules.settings(*other) for other in twins]


def test_lengths_of_older_checkpoints_are_restored() -> None:
    layers = network(depth=10)
    shapes = {(g.out_channels, g.in_channels, g.kernel_size) for _, g in layers}
    lengths = torch.tensor([4 + n % 2 for n in range(len(shapes))])
    schedules.restore_lengths(layers, lengths)
    layer, geometry = layers[0]
    lot, rows = schedules.settings(layer, geometry), min(geometry.out_channels, geometry.in_channels)
    assert len(schedule(sigma_min(rows, lot.condition), lot.tolerance)) == 4


@pytest.mark.parametrize("smallest", (0.5, 0.1, 0.02, 0.004))
def test_operators_stay_orthogonal_until_the_condition_grows_by_a_quarter(smallest: float) -> None:
    layers = one_layer()
    set_singular_values(layers, smallest)
    schedules.measure(layers)
    for worse in (1.0, 1.24):
        set_singular_values(layers, smallest / worse)
        (operator,) = operators([with_settings(*layers[0])])
        values = torch.linalg.svdvals(operator.transfers.detach())
        assert 1 - 1e-4 - 1e-5 <= values.min() <= values.max() <= 1 + 1e-5


@pytest.mark.parametrize("smallest", (0.3, 0.1, 0.01, 1e-4, 0.0))
def test_singular_values_stay_below_one_when_kernels_change_after_they_were_measured(smallest: float) -> None:
    """A schedule for 0.3 meets singular values far below its lower end."""
    layers = one_layer()
    set_singular_values(layers, 0.46)
    schedules.measure(layers)
    assert smallest_sigma(layers) == 0.3
    set_singular_values(layers, smallest)
    (operator,) = operators([with_settings(*layers[0])])
    assert torch.linalg.svdvals(operator.transfers.detach()).max() <= 1 + 1e-5
    operator.transfers.abs().sum().backward()
    assert layers[0][0].weight.grad.isfinite().all()


def test_kernels_beyond_every_schedule_get_the_longest() -> None:
    layers = one_layer()
    with torch.no_grad():
        layers[0][0].weight.zero_()
    schedules.measure(layers)
    assert length(layers) == 8


def test_layers_without_pairs_of_frequencies_are_measured() -> None:
    """2 x 2 images with circular padding have real frequencies only, so that with 256 channels the batch of complex
    frequencies is empty."""
    torch.manual_seed(0)
    layer = OrthogonalConv2d(256, 256, 2, padding_mode="circular")
    layers = [(layer, layer.geometry(2, 2))]
    assert schedules.measure(layers)
    assert length(layers) == 3
