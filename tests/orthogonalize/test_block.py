"""`with orthogonalized(model):` equals the layers on their own, whatever runs in the block."""

import copy
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lotnet import ConvexResidual, MaxMin, OrthogonalConv2d, OrthogonalLinear, orthogonalized
from lotnet.errors import InputError
from lotnet.linalg import polar_svd
from lotnet.orthogonalize import grouping
from lotnet.parametrizations import PARAMETRIZATIONS


def model(parametrization: str = "lot") -> nn.Sequential:
    torch.manual_seed(0)
    inner = OrthogonalConv2d(8, 8, 3, parametrization=parametrization)
    layers = nn.Sequential(
        OrthogonalConv2d(3, 8, 3, stride=2, parametrization=parametrization),
        MaxMin(),
        ConvexResidual(nn.Sequential(inner, MaxMin())),
        inner,  # used twice
        OrthogonalConv2d(8, 12, 1, parametrization=parametrization),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        OrthogonalLinear(12, 4),
    )
    for parameter in layers.parameters():
        nn.init.normal_(parameter, std=0.2)
    return layers.double().train()


def batch(side: int = 8, seed: int = 1) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(8, 3, side, side, generator=g, dtype=torch.float64), torch.randint(0, 4, (8,), generator=g)


def loss_of(net: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(net(images), labels)


def gradients(net: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in net.parameters()]


def assert_close(first: nn.Module, second: nn.Module, tolerance: float = 1e-9) -> None:
    """Weights and gradients."""
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert (a - b).abs().max() <= tolerance
        assert a.grad is not None and b.grad is not None and (a.grad - b.grad).abs().max() <= tolerance


def train(net: nn.Module, steps: int, block: bool) -> nn.Module:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    for n in range(steps):
        optimizer.zero_grad()
        if block:
            with orthogonalized(net):
                loss_of(net, *batch(seed=n)).backward()
        else:
            loss_of(net, *batch(seed=n)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return net


@pytest.mark.parametrize("in_batches", (False, True))
def test_twenty_steps_equal_the_layers_on_their_own(monkeypatch: pytest.MonkeyPatch, in_batches: bool) -> None:
    monkeypatch.setattr(grouping, "in_batches", lambda layer: in_batches and layer.kernel_size == 3)
    assert_close(train(model(), 20, block=True), train(model(), 20, block=False))


@pytest.mark.parametrize("parametrization", PARAMETRIZATIONS)
def test_every_parametrization(parametrization: str) -> None:
    side_by_side = [train(model(parametrization), 3, block) for block in (False, True)]
    assert_close(*side_by_side)


@pytest.mark.parametrize("parts", (1, 2, 4))
def test_micro_batches_share_one_orthogonalization(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    calls = []
    decompose = polar_svd._decompose
    monkeypatch.setattr(polar_svd, "_decompose", lambda *args, **named: (calls.append(1), decompose(*args, **named))[1])
    whole, net = model(), model()
    loss_of(whole, *batch()).backward()
    alone = len(calls)
    with orthogonalized(net):
        for images, labels in zip(*(tensor.chunk(parts) for tensor in batch()), strict=True):
            (loss_of(net, images, labels) / parts).backward()
    assert_close(net, whole)
    assert len(calls) - alone == 4  # one for each layer; without the block the layer that is used twice has two
    assert alone == 5


def test_kernels_get_gradients_only_after_the_block_and_added_to_what_is_there() -> None:
    net, twice = model(), model()
    for _ in range(2):
        loss_of(twice, *batch()).backward()
    for n in range(2):
        with orthogonalized(net):
            loss_of(net, *batch()).backward()
            assert n or net[0].weight.grad is None
            assert net[0].bias.grad is not None
    assert_close(net, twice)


def test_other_image_sizes_have_operators_of_their_own() -> None:
    net, alone = model(), model()
    for sides in ((8, 12), (12,), (8, 8), (4,)):
        net.zero_grad()
        alone.zero_grad()
        with orthogonalized(net):
            for side in sides:
                loss_of(net, *batch(side)).backward()
        for side in sides:
            loss_of(alone, *batch(side)).backward()
        assert_close(net, alone)


def test_a_forward_pass_without_gradients_comes_first() -> None:
    net, alone = model(), model()
    with orthogonalized(net):
        with torch.no_grad():
            loss_of(net, *batch())
        with torch.inference_mode():
            loss_of(net, *batch(12))
        loss_of(net, *batch()).backward()
        loss_of(net, *batch(12)).backward()
    for side in (8, 12):
        loss_of(alone, *batch(side)).backward()
    assert_close(net, alone)


def test_autocast_and_scaled_losses() -> None:
    net = model().float()
    alone = copy.deepcopy(net)
    images, labels = batch()
    for enter in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if enter:
                with orthogonalized(net):
                    (1024 * loss_of(net, images.float(), labels)).backward()
            else:
                (1024 * loss_of(alone, images.float(), labels)).backward()
    for a, b in zip(net.parameters(), alone.parameters(), strict=True):
        assert (a.grad - b.grad).norm() <= 1e-2 * b.grad.norm()


def test_a_compiled_loss_and_a_gradient_scaler() -> None:
    """Unscaling, clipping and the step come after the block."""
    compiled = torch.compile(F.cross_entropy, backend="aot_eager")
    trained = []
    for block, loss in ((True, compiled), (False, F.cross_entropy)):
        net = model().float()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for n in range(3):
            optimizer.zero_grad()
            images, labels = batch(seed=n)
            with orthogonalized(net) if block else nullcontext():
                scaler.scale(loss(net(images.float()), labels)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        trained.append(net)
    assert_close(*trained, tolerance=1e-5)


def test_frozen_kernels_and_layers_in_evaluation_mode() -> None:
    net, alone = model(), model()
    for m in (net, alone):
        m[0].weight.requires_grad_(False)
        m[4].eval()
    for _ in range(2):
        with orthogonalized(net):
            loss_of(net, *batch()).backward()
        loss_of(alone, *batch()).backward()
    for a, b in zip(gradients(net), gradients(alone), strict=True):
        assert (a is None) == (b is None) and (a is None or (a - b).abs().max() < 1e-9)
    assert net[0].weight.grad is None


@pytest.mark.parametrize("backward_first", (False, True))
def test_an_exception_leaves_the_model_usable(backward_first: bool) -> None:
    net = model()
    with pytest.raises(ZeroDivisionError), orthogonalized(net):
        if backward_first:
            loss_of(net, *batch()).backward()
        raise ZeroDivisionError
    assert all(layer.weight.grad is None for layer in net.modules() if isinstance(layer, OrthogonalConv2d))
    net.zero_grad()
    assert_close(train(net, 2, block=True), train(model(), 2, block=False))
    torch.optim.SGD(net.parameters(), lr=0.1).step()


def test_nested_uses_are_refused_and_the_outer_one_goes_on() -> None:
    net, alone = model(), model()
    with orthogonalized(net):
        with pytest.raises(InputError, match="one `with orthogonalized"), orthogonalized(net[2]):
            pass
        with orthogonalized(alone):  # another model
            loss_of(net, *batch()).backward()
    loss_of(alone, *batch()).backward()
    assert_close(net, alone)


def test_a_step_inside_is_refused() -> None:
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    other = torch.optim.Adam([net[0].bias])
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(InputError, match="after it"), orthogonalized(net):
        loss_of(net, *batch()).backward()
        optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    with orthogonalized(net):
        loss_of(net, *batch()).backward()
        other.step()  # of no kernel
    optimizer.step()


def test_kernels_that_change_inside_are_refused() -> None:
    net = model()
    with pytest.raises(InputError, match="changed inside"), orthogonalized(net):
        loss_of(net, *batch()).backward()
        with torch.no_grad():
            net[0].weight.mul_(2)


def test_second_derivatives_and_gradients_of_kernels_are_refused() -> None:
    net = model()
    with pytest.raises(InputError, match="create_graph"), orthogonalized(net):
        loss_of(net, *batch()).backward(create_graph=True)
    with orthogonalized(net), pytest.raises(RuntimeError, match="not have been used in the graph"):
        torch.autograd.grad(loss_of(net, *batch()), net[0].weight)


def test_a_kernel_that_is_not_finite_is_named_and_nothing_is_left_behind() -> None:
    net = model()
    with orthogonalized(net):
        loss_of(net, *batch())
    with torch.no_grad():
        net[0].weight[0, 0, 0, 0] = torch.nan
    with pytest.raises(InputError, match="NaN"), orthogonalized(net):
        pass
    with torch.no_grad():
        net[0].weight[0, 0, 0, 0] = 0.0
    with orthogonalized(net):
        loss_of(net, *batch()).backward()


def test_a_model_without_such_layers() -> None:
    net = nn.Linear(3, 2)
    with orthogonalized(net):
        net(torch.rand(4, 3)).sum().backward()
    assert net.weight.grad is not None
