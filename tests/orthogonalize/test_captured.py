"""`CapturedGradients` equals the function it records. CUDA graphs are tested on a GPU, all the rest on a CPU, too."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lotnet import CapturedGradients, Centering, MaxMin, OrthogonalConv2d, OrthogonalLinear, orthogonalized
from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.errors import InputError
from lotnet.losses import LOSSES
from lotnet.models import ImageSpec, LipConvnet
from lotnet.training.precision import arithmetic

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))
IMAGES = ImageSpec(3, 8, 8, 10, (0.5, 0.5, 0.5), 0.25)


def network(device: str = "cpu") -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(
        OrthogonalConv2d(3, 8, 3), Centering(8), MaxMin(), OrthogonalConv2d(8, 8, 3, stride=2), nn.Flatten(),
        OrthogonalLinear(128, 4),
    )  # fmt: skip
    for parameter in layers.parameters():
        nn.init.normal_(parameter, std=0.2)
    return layers.double().to(device).train()


def batch(n: int, device: str, size: int = 8) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(n)
    images = torch.rand(size, 3, 8, 8, generator=g, dtype=torch.float64)
    return images.to(device), torch.randint(0, 4, (size,), generator=g).to(device)


def function(net: nn.Module, parts: int = 1) -> Callable[..., Tensor]:
    def gradients(images: Tensor, labels: Tensor, scale: float | Tensor) -> Tensor:
        total = torch.zeros((), dtype=images.dtype, device=images.device)
        with orthogonalized(net):
            for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
                loss = scale * F.cross_entropy(net(x), y) / parts
                loss.backward()
                total += loss.detach()
        return total

    return gradients


@pytest.mark.parametrize("parts", (1, 2))
@pytest.mark.parametrize("device", DEVICES)
def test_twenty_steps_equal_an_own_loop(device: str, parts: int) -> None:
    """Weights, losses and the buffers of Centering, with batches of two shapes."""
    found = []
    for wrap in (lambda plain, net: plain, lambda plain, net: CapturedGradients(plain, net, measure_every=None)):
        net = network(device)
        for _ in range(2):  # on a GPU the second block measures the kernels: here both loops do it at the same weights
            function(net)(*batch(0, device), 1.0)
        optimizer, gradients, losses = torch.optim.SGD(net.parameters(), 0.5, 0.9), wrap(function(net, parts), net), []
        for n in range(20):
            optimizer.zero_grad()
            losses.append(float(gradients(*batch(n, device, 8 if n % 4 else 4), 1.0 + n / 16)))
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        found.append((net.state_dict(), losses))
    (expected, expected_losses), (weights, losses) = found
    assert losses == pytest.approx(expected_losses, abs=1e-9)
    for name, value in expected.items():
        assert (weights[name] - value).abs().max() <= 1e-9


@pytest.mark.parametrize("device", DEVICES)
def test_a_call_leaves_its_own_gradients_and_adds_nothing(device: str) -> None:
    net = network(device)
    captured, plain = CapturedGradients(function(net), net), function(net)
    for n in (1, 2, 3):
        captured(*batch(n, device), 1.0)
        found = [p.grad.clone() for p in net.parameters() if p.grad is not None]
        net.zero_grad(set_to_none=n % 2 == 1)
        captured(*batch(n, device), 1.0)
        again = [p.grad.clone() for p in net.parameters() if p.grad is not None]
        net.zero_grad()
        plain(*batch(n, device), 1.0)
        for a, b, p in zip(found, again, net.parameters(), strict=True):
            assert p.grad is not None and (a - p.grad).abs().max() < 1e-12 and (b - p.grad).abs().max() < 1e-12


@pytest.mark.parametrize("device", DEVICES)
def test_a_generator_yields_what_runs_between_recorded_parts(device: str) -> None:
    net, seen = network(device), []
    plain = function(net)

    def gradients(images: Tensor, labels: Tensor, scale: float | Tensor) -> Iterator[Callable[[], object]]:
        loss = plain(images, labels, scale)
        yield lambda: seen.append(1)
        for parameter in net.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(2)
        return loss

    captured = CapturedGradients(gradients, net)
    losses = [float(captured(*batch(n, device), 1.0)) for n in (1, 2)]
    assert len(seen) >= 2
    doubled = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    assert losses[1] == pytest.approx(float(plain(*batch(2, device), 1.0)))
    for a, p in zip(doubled, net.parameters(), strict=True):
        assert p.grad is not None and (a - 2 * p.grad).abs().max() < 1e-12


def test_distributed_data_parallel_is_refused(tmp_path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        net = nn.parallel.DistributedDataParallel(network())
        with pytest.raises(InputError, match="give the module inside it"):
            CapturedGradients(function(net), net)
    finally:
        torch.distributed.destroy_process_group()


READS = """
import torch
from torch import nn
import lotnet
from lotnet.errors import InputError
net = nn.Sequential(lotnet.OrthogonalConv2d(3, 8, 3), nn.Flatten()).cuda()
def gradients(images):
    with lotnet.orthogonalized(net):
        loss = net(images).square().mean()
        loss.backward()
    return loss * loss.item()
try:
    lotnet.CapturedGradients(gradients, net)(torch.rand(4, 3, 8, 8, device="cuda"))
except InputError as error:
    print(error)
"""


@pytest.mark.gpu
def test_a_step_that_reads_a_value_is_refused() -> None:
    """In a process of its own: a recording that failed may leave PyTorch unable to record."""
    out = subprocess.run([sys.executable, "-c", READS], capture_output=True, text=True, check=False)
    assert "cannot be recorded as a CUDA graph (" in out.stdout and "such as .item()" in out.stdout, out


@pytest.mark.gpu
@pytest.mark.parametrize("head", ["orthogonal", "lln"])
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_can_be_recorded(name: str, head: str) -> None:
    torch.manual_seed(0)
    model = LipConvnet(channels=4, activation="hh1", head=head).build(IMAGES).cuda().train()
    images, labels = torch.rand(16, 3, 8, 8, device="cuda"), torch.randint(0, 10, (16,), device="cuda")
    loss_of, lipschitz = LOSSES[name](), pixel_lipschitz(model)

    def gradients(images: Tensor, labels: Tensor, progress: float | Tensor) -> Tensor:
        with orthogonalized(model):
            logits = model(images)
            pairwise = pairwise_constants(model[-1], logits.shape[1], logits)
            loss = loss_of(logits, labels, lipschitz, pairwise, progress)
            loss.backward()
        return loss.detach()

    with arithmetic(tf32=True):
        captured, parameters = CapturedGradients(gradients, model), list(model.parameters())
        for progress in (0.1, 0.9):  # one graph: it must not hold values that change between steps
            loss = captured(images, labels, progress)
            written = [p.grad.clone() for p in parameters if p.grad is not None]
            model.zero_grad(set_to_none=True)
            torch.testing.assert_close(loss, gradients(images, labels, torch.tensor(progress, device="cuda")))
            for parameter, gradient in zip(parameters, written, strict=True):
                torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-6)
