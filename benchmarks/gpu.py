"""How fast LOT trains and runs on one GPU, beside a plain convolution and the other layers: one run, medians, ratios.

    python benchmarks/gpu.py --out results/speed.json [--tables wide own ...] [--seconds 360]

A training step computes loss and gradients of one batch, as a CUDA graph in TF32 (TensorFloat-32) arithmetic unless
the row says otherwise. LOT's step includes the orthogonalisation, with as many steps as its kernels need. Kernels are
initial ones, with noise added to identity kernels; `ill-conditioned` ones are as badly conditioned as trained ones.
`literal` is the paper's algorithm as printed. Memory is the peak of an eager step above weights and batch.

The tables are measured in the order of `TABLES`. No row is begun after `--seconds`. Triton compiles each kernel when it
is first used, for minutes in all: `--compile` does that for all networks side by side, and measures nothing.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
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

DEVICE = torch.device("cuda")
Row = dict[str, Any]


class Network:
    """A network with kernels of one kind, made again for each row, so that no row sees what another left."""

    def __init__(self, name: str, make: Callable[[str], nn.Sequential], side: int = 32) -> None:
        self.name, self._make, self.side = name, make, side

    def build(self, kind: str) -> nn.Sequential:
        torch.manual_seed(0)
        ill = kind == "lot, ill-conditioned"
        model = self._make("lot" if ill else kind)  # on a CPU: the kernels are those of earlier records
        return (ill_conditioned if ill else perturbed)(model).to(DEVICE).train()


def lipconvnet(depth: int, channels: int = 32, side: int = 32) -> Network:
    name = f"LipConvnet-{depth}, {channels} channels" + (f", side {side}" if side != 32 else "")
    return Network(name, lambda kind: network(kind, depth, channels, side), side)


FLAT = Network("12 layers of 256 channels at 16 x 16", flat_network)
WIDE = (lipconvnet(5), lipconvnet(20), lipconvnet(5, 64), lipconvnet(5, 128), FLAT, lipconvnet(40))
KINDS = ("plain", "lot", "lot, ill-conditioned")


def wide(repeats: int) -> Iterator[Row]:
    """LOT against plain convolutions."""
    for net in WIDE:
        for kind in KINDS:
            yield {"network": net.name, "kind": kind, **step(net, kind, repeats)}


def micro(repeats: int) -> Iterator[Row]:
    """Several batches for one orthogonalisation."""
    for net, batch, parts in (
        (lipconvnet(5), 256, 1),
        (lipconvnet(5), 256, 4),
        (lipconvnet(5, 128), 2048, 8),
        (lipconvnet(20), 256, 4),
    ):
        for kind in KINDS[:2]:
            yield {"network": net.name, "kind": kind, "batch": batch, "parts": parts} | step(
                net, kind, repeats, batch, parts
            )


def own(repeats: int) -> Iterator[Row]:
    """A whole step with its optimizer: that of `lotnet train`, and an own loop with the public names."""
    for depth, channels in ((5, 32), (20, 32)):
        net = lipconvnet(depth, channels)
        yield {"network": net.name, "loop": "lotnet train", "ms": own_step(net, repeats, ours=True)}
        yield {"network": net.name, "loop": "own loop", "ms": own_step(net, repeats, ours=False)}


def peers(repeats: int) -> Iterator[Row]:
    """Other layers, and IEEE arithmetic."""
    for depth in (5, 20):
        for kind in ("literal", "soc", "bcop"):
            yield {"network": lipconvnet(depth).name, "kind": kind, **step(lipconvnet(depth), kind, repeats)}
        yield {"network": lipconvnet(depth).name, "kind": "cayley", **step(lipconvnet(depth), "cayley", repeats)}
        for kind in ("plain", "lot", "literal"):
            ieee = step(lipconvnet(depth), kind, repeats, tf32=False)
            yield {"network": lipconvnet(depth).name, "kind": f"{kind}, float32", **ieee}


def evaluation(repeats: int) -> Iterator[Row]:
    """The frozen network in IEEE float32; a frozen SOC layer sums 12 terms."""
    for depth in (5, 20):
        for kind in ("plain", "lot", "soc"):
            yield {"network": lipconvnet(depth).name, "kind": kind, **evaluated(kind, depth, repeats)}


def growth(repeats: int) -> Iterator[Row]:
    """Other batches and images."""
    for net, batch in (
        (lipconvnet(5), 64),
        (lipconvnet(5), 1024),
        (lipconvnet(5, side=64), 256),
        (lipconvnet(40, 64), 256),
    ):
        for kind in KINDS[:2]:
            yield {"network": net.name, "kind": kind, "batch": batch, **step(net, kind, repeats, batch)}


TABLES: dict[str, Callable[[int], Iterator[Row]]] = {
    "wide": wide, "own": own, "micro": micro, "peers": peers, "growth": growth, "evaluation": evaluation,
}  # fmt: skip


def gradients(model: nn.Module, parts: int) -> Callable[[Tensor, Tensor], Tensor]:
    def compute(images: Tensor, labels: Tensor) -> Tensor:
        with orthogonalized(model):
            for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
                loss = F.cross_entropy(model(x), y) / parts
                loss.backward()
        return loss.detach()

    return compute


def step(net: Network, kind: str, repeats: int, batch: int = 256, parts: int = 1, tf32: bool = True) -> Row:
    torch.cuda.empty_cache()
    model = net.build(kind)
    images = torch.rand(batch, 3, net.side, net.side, device=DEVICE)
    labels = torch.randint(0, 10, (batch,), device=DEVICE)
    compute, row = gradients(model, parts), Row()
    with arithmetic(tf32=tf32):
        captured = CapturedGradients(compute, model, measure_every=None)
        if kind == "cayley":  # its library solver waits for the device, which a graph cannot record
            row["eager_ms"] = median(lambda: run(compute, (images, labels)), repeats)
        else:
            captured(images, labels)
            row["graph_ms"] = median(lambda: captured(images, labels), repeats)
            if kind.startswith("lot"):
                assert not measure_again(model), "the second step measured the kernels"
                row |= polar_operations(model)
        captured.reset()
        model.zero_grad()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(compute, (images, labels))
        row["memory_gib"] = (torch.cuda.max_memory_allocated() - before) / 2**30
    return row


def own_step(net: Network, repeats: int, ours: bool) -> float:
    torch.cuda.empty_cache()
    config = RunConfig.from_recipe("cifar10/plain")
    model = net.build("lot")
    images, labels = torch.rand(256, 3, 32, 32, device=DEVICE), torch.randint(0, 10, (256,), device=DEVICE)
    if ours:
        fabric: Any = SimpleNamespace(device=DEVICE)
        trained = TrainingStep(config, model, images[:1], fabric)
        trained.begin_epoch(resumed=False)
        return median(lambda: trained(images, labels, 0.0), repeats)
    with arithmetic(tf32=True):
        captured = CapturedGradients(gradients(model, 1), model)
        optimizer = make_optimizer(config.optimizer, model)

        def one() -> None:
            captured(images, labels)
            optimizer.step()

        return median(one, repeats)


@torch.no_grad()
def evaluated(kind: str, depth: int, repeats: int) -> Row:
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    model = perturbed(network(kind, depth)).to(DEVICE).eval()
    model = model if kind == "plain" else freeze(model, 32).to(DEVICE)
    images = torch.rand(256, 3, 32, 32, device=DEVICE)
    with arithmetic(tf32=False):
        for _ in range(3):
            model(images)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(images)
        return {"graph_ms": median(graph.replay, repeats)}


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


def median(call: Callable[[], object], repeats: int) -> float:
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/speed.json"))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=360, help="begin no row after this time; default: 360")
    parser.add_argument("--commit", default="", help="commit of the code, to store in the output")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--compile", action="store_true", help="compile the kernels, side by side, and measure nothing")
    parser.add_argument("--compile-one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        command = [sys.executable, __file__, "--compile-one"]
        for process in [subprocess.Popen([*command, str(n)]) for n in range(len(WIDE))]:
            process.wait()
        return
    if options.compile_one is not None:
        for kind in KINDS[1:]:
            step(WIDE[options.compile_one], kind, repeats=1)
        return
    started = time.perf_counter()
    about = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "commit": options.commit,
        "batch": 256,
    }
    result: Row = {"about": about}
    for table in options.tables:
        result[table] = []
        for row in TABLES[table](options.repeats):
            result[table].append(row)
            spent = time.perf_counter() - started
            shown = (f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
            print(f"{spent:4.0f} s {table}", *shown, flush=True)
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(result, indent=1))
            if spent > options.seconds:
                return


if __name__ == "__main__":
    main()
