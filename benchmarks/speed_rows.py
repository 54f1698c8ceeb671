"""What `gpu.py` measures: networks, kinds of layers, and tables of rows.

A row is measured by one function. Rows whose times are compared stand in one `Group`, which is measured in one run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lotnet import CapturedGradients, orthogonalized
from lotnet.config import RunConfig
from lotnet.layers import OrthogonalConv2d, freeze
from lotnet.orthogonalize.block import measure_again
from lotnet.orthogonalize.captured import run
from lotnet.training.optim import make_optimizer
from lotnet.training.precision import arithmetic
from lotnet.training.step import TrainingStep
from networks import flat_network, network
from operations import polar_operations
from timing import Timer

Row = dict[str, Any]
BATCH = 256
KINDS = ("plain", "lot", "lot, ill-conditioned")
GOALS = {
    "LipConvnet-5, 32 channels": (2.4, 2.8),
    "LipConvnet-20, 32 channels": (1.7, 2.0),
    "LipConvnet-5, 64 channels": (3.2, None),
    "LipConvnet-5, 128 channels": (5.5, None),
    "12 layers of 256 channels at 16 x 16": (2.5, None),
}
"""The ratios to plain convolutions to reach, at the start of training and with ill-conditioned kernels."""


@dataclass(frozen=True)
class Bench:
    """Where and how rows are measured."""

    timer: Timer
    trial: bool = False
    """Tiny networks and batches instead of those that rows name: shows that a row works, and measures nothing."""

    @property
    def device(self) -> torch.device:
        return self.timer.device

    def batch(self, images: int, side: int) -> tuple[Tensor, Tensor]:
        images, side = (8, 8) if self.trial else (images, side)
        torch.manual_seed(1)
        return torch.rand(images, 3, side, side, device=self.device), torch.randint(0, 10, (images,)).to(self.device)


@dataclass(frozen=True)
class Network:
    """A network with kernels of one kind, built again for each row, so that no row sees what another left."""

    name: str
    depth: int | None
    """Of a LipConvnet; None for `networks.flat_network`."""
    channels: int
    side: int = 32

    def build(self, bench: Bench, kind: str) -> nn.Sequential:
        torch.manual_seed(0)
        depth, channels, side, layers = (5, 2, 8, 2) if bench.trial else (self.depth, self.channels, self.side, 12)
        ill = kind == "lot, ill-conditioned"
        layer = "lot" if ill else kind
        model = flat_network(layer, channels, layers) if self.depth is None else network(layer, depth, channels, side)
        # Built on a CPU, so that the kernels are those of earlier records.
        return (ill_conditioned if ill else perturbed)(model).to(bench.device).train()


def lipconvnet(depth: int, channels: int = 32, side: int = 32) -> Network:
    name = f"LipConvnet-{depth}, {channels} channels" + (f", side {side}" if side != 32 else "")
    return Network(name, depth, channels, side)


FLAT = Network("12 layers of 256 channels at 16 x 16", None, 256)
WIDE = (lipconvnet(5), lipconvnet(20), lipconvnet(5, 64), lipconvnet(5, 128), FLAT, lipconvnet(40))


@dataclass(frozen=True)
class Group:
    """Rows of one table that are compared with each other, each as its name and a function that measures the rest."""

    table: str
    network: Network
    rows: list[tuple[Row, Callable[[Bench], Row]]]

    @property
    def title(self) -> str:
        """No other group has the same."""
        first, _ = self.rows[0]
        return ", ".join(map(str, (self.table, self.network.name, *first.values())))

    def measure(self, bench: Bench) -> Iterator[Row]:
        for name, measure in self.rows:
            yield {"network": self.network.name} | name | measure(bench)

    def among(self, rows: list[Row]) -> list[Row] | None:
        """This group's rows among those measured already; None unless all are there."""
        names = [{"network": self.network.name} | name for name, _ in self.rows]
        found = [row for name in names for row in rows if name.items() <= row.items()]
        return found if len(found) == len(names) else None


def groups() -> Iterator[Group]:
    """All rows, the most important ones first."""
    for net in WIDE:  # LOT against plain convolutions
        yield Group("wide", net, [({"kind": kind}, partial(step, net, kind)) for kind in KINDS])
    for net in WIDE[:2]:  # a whole step with its optimizer
        for kind in KINDS[1:]:
            loops = {"lotnet train": lotnet_step, "own loop": own_step}
            rows = [({"kind": kind, "loop": loop}, partial(work, net, kind)) for loop, work in loops.items()]
            yield Group("own", net, rows)
    for net, batch, parts in ((WIDE[0], BATCH, (1, 4)), (WIDE[1], BATCH, (1, 4)), (WIDE[3], 8 * BATCH, (8,))):
        micro = [
            ({"kind": kind, "batch": batch, "parts": n}, partial(step, net, kind, batch=batch, parts=n))
            for kind in KINDS
            for n in parts
        ]
        yield Group("micro", net, micro)
    for net in WIDE[:2]:  # other layers, and IEEE arithmetic
        peers = [({"kind": kind}, partial(step, net, kind)) for kind in ("literal", "soc", "bcop", "cayley")]
        for kind in ("plain", "lot", "literal"):
            peers.append(({"kind": f"{kind}, float32"}, partial(step, net, kind, tf32=False)))
        yield Group("peers", net, peers)
    sizes = ((WIDE[0], 64), (WIDE[0], 1024), (lipconvnet(5, side=64), BATCH), (lipconvnet(40, 64), BATCH))
    for net, batch in sizes:
        growth = [({"kind": kind, "batch": batch}, partial(step, net, kind, batch=batch)) for kind in KINDS[:2]]
        yield Group("growth", net, growth)
    for net in WIDE[:2]:
        frozen = [({"kind": kind}, partial(evaluated, net, kind)) for kind in ("plain", "lot", "soc")]
        yield Group("evaluation", net, frozen)


def gradients(model: nn.Module, parts: int) -> Callable[[Tensor, Tensor], Tensor]:
    def compute(images: Tensor, labels: Tensor) -> Tensor:
        with orthogonalized(model):
            for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
                loss = F.cross_entropy(model(x), y) / parts
                loss.backward()
        return loss.detach()

    return compute


def step(net: Network, kind: str, bench: Bench, batch: int = BATCH, parts: int = 1, tf32: bool = True) -> Row:
    """Loss and gradients of one batch."""
    model = net.build(bench, kind)
    images, labels = bench.batch(batch, net.side)
    compute, row = gradients(model, parts), Row()
    with arithmetic(tf32=tf32):
        captured = CapturedGradients(compute, model, measure_every=None)
        if kind == "cayley":  # its library solver waits for the device, which a graph cannot record
            row["eager_ms"] = bench.timer.ms(lambda: run(compute, (images, labels)))
        else:
            captured(images, labels)
            row["graph_ms"] = bench.timer.ms(lambda: captured(images, labels))
            if kind.startswith("lot"):
                assert not measure_again(model), "the second step measured the kernels"
                row |= polar_operations(model)
        captured.reset()
        model.zero_grad()
        row["memory_gib"] = bench.timer.peak_gib(lambda: run(compute, (images, labels)))
    return row


def lotnet_step(net: Network, kind: str, bench: Bench) -> Row:
    """A whole step of `lotnet train`."""
    images, labels = bench.batch(BATCH, net.side)
    fabric: Any = SimpleNamespace(device=bench.device)
    trained = TrainingStep(RunConfig.from_recipe("cifar10/plain"), net.build(bench, kind), images[:1], fabric)
    trained.begin_epoch(resumed=False)
    return {"ms": bench.timer.ms(lambda: trained(images, labels, 0.0))}


def own_step(net: Network, kind: str, bench: Bench) -> Row:
    """The same step in a loop that uses the public names."""
    model = net.build(bench, kind)
    images, labels = bench.batch(BATCH, net.side)
    optimizer = make_optimizer(RunConfig.from_recipe("cifar10/plain").optimizer, model)
    captured = CapturedGradients(gradients(model, 1), model)

    def one() -> None:
        captured(images, labels)
        optimizer.step()

    with arithmetic(tf32=True):
        return {"ms": bench.timer.ms(one)}


@torch.no_grad()
def evaluated(net: Network, kind: str, bench: Bench) -> Row:
    """The frozen network in IEEE float32; a frozen SOC layer sums 12 terms."""
    images = bench.batch(BATCH, net.side)[0]
    model = net.build(bench, kind).eval()
    model = model if kind == "plain" else freeze(model, images.shape[-1]).to(bench.device)
    with arithmetic(tf32=False):
        return {"graph_ms": bench.timer.ms(bench.timer.recorded(lambda: model(images)))}


@torch.no_grad()
def ill_conditioned(model: nn.Sequential) -> nn.Sequential:
    """Make kernels as ill-conditioned as those of a trained LipConvnet-20 (results/gradient.md): add as much noise to
    square ones as they have identity, and give the others rows of unequal length."""
    for layer in model.modules():
        if isinstance(layer, OrthogonalConv2d) and layer.weight.ndim == 4:
            o, i, k, _ = layer.weight.shape
            if o == i:
                layer.weight.add_(torch.randn_like(layer.weight), alpha=(1.0 if o < 256 else 0.9) / (o**0.5 * k))
            else:
                layer.weight.mul_(torch.logspace(0, -1, o)[:, None, None, None])
    return model


@torch.no_grad()
def perturbed(model: nn.Sequential) -> nn.Sequential:
    """Add noise to square kernels, as training would: they start at the identity, which is too easy a case."""
    for layer in model.modules():
        if isinstance(layer, OrthogonalConv2d) and layer.weight.ndim == 4:
            o, i, k, _ = layer.weight.shape
            if o == i:
                layer.weight.add_(torch.randn_like(layer.weight), alpha=0.15 / (o**0.5 * k))
    return model
