"""How fast LOT trains and runs on one GPU, beside a plain convolution and the other layers: one run, medians, ratios.

    python benchmarks/gpu.py --out results/speed.json

A training step computes the loss and gradients of one batch, as the training loop does. LOT's step includes the joint
orthogonalisation, with the schedule that its kernels need. Peak memory is measured on an eager step. `literal` is the
paper's algorithm as printed. Kernels are initial ones, with noise added to identity kernels; the kernels of
`lot, ill-conditioned` are as badly conditioned as trained ones.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from lotnet.layers import OrthogonalConv2d, freeze
from lotnet.orthogonalize.grouping import GroupedOrthogonalization
from lotnet.training.precision import arithmetic
from networks import network

DEVICE = torch.device("cuda")
TABLES = ("train", "evaluation", "growth")
ILL_CONDITIONED = "lot, ill-conditioned"
KINDS = ("plain", "literal", "lot", ILL_CONDITIONED, "soc", "cayley", "bcop")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/speed.json"))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--commit", default="", help="commit of the code, to store in the output")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    options = parser.parse_args()
    started = time.perf_counter()
    about = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "commit": options.commit,
        "batch": 256,
    }
    result: dict = {"about": about, "train": [], "growth": [], "evaluation": []}

    def keep(table: str, **row: object) -> None:
        result[table].append(row)
        print(table, *(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1))

    for depth in (5, 20, 40) if "train" in options.tables else ():
        for kind in KINDS:
            if depth == 40 and kind not in ("plain", "lot", ILL_CONDITIONED):
                continue
            for tf32 in (True, False):
                if not tf32 and (depth == 40 or kind not in ("plain", "literal", "lot")):
                    continue
                keep("train", kind=kind, depth=depth, tf32=tf32, **training(kind, depth, tf32, options.repeats))
    for depth in (5, 20, 40) if "evaluation" in options.tables else ():
        for kind in ("plain", "lot", "soc"):
            keep("evaluation", kind=kind, depth=depth, **evaluation(kind, depth, options.repeats))
    sizes = ((32, 64, 32), (32, 1024, 32), (64, 256, 32), (128, 256, 32), (32, 256, 64))
    for channels, batch, side in sizes if "growth" in options.tables else ():
        for kind in ("plain", "lot"):
            row = training(kind, 5, True, options.repeats, channels, batch, side)
            keep("growth", kind=kind, depth=5, channels=channels, batch=batch, side=side, **row)
    if "growth" in options.tables:
        keep("growth", kind="lot", depth=40, channels=64, batch=256, side=32, **training("lot", 40, True, 5, 64))
    print(f"{time.perf_counter() - started:.0f} s in all")


def training(
    kind: str, depth: int, tf32: bool, repeats: int, channels: int = 32, batch: int = 256, side: int = 32
) -> dict[str, float]:
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    model = network("lot" if kind == ILL_CONDITIONED else kind, depth, channels, side)
    model = (_ill_conditioned(model) if kind == ILL_CONDITIONED else _perturbed(model)).to(DEVICE).train()
    images = torch.rand(batch, 3, side, side, device=DEVICE)
    labels = torch.randint(0, 10, (batch,), device=DEVICE)
    grouping = GroupedOrthogonalization(model, images[:1]) if kind in ("lot", ILL_CONDITIONED) else None
    with arithmetic(tf32=tf32):
        if grouping:
            grouping.refresh()

        def step() -> None:
            for parameter in model.parameters():
                parameter.grad = None
            if grouping:
                grouping.prepare()
            F.cross_entropy(model(images), labels).backward()
            if grouping:
                grouping.release()

        row: dict[str, float] = {}
        # Record the graph first: an eager step allocates gradients on the default stream, which a graph cannot capture.
        if kind != "cayley":  # its library solver synchronizes with the device, which a graph cannot record
            row["graph_ms"] = _median(_recorded(step), repeats)
        row["eager_ms"] = _median(step, repeats)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        row["memory_gib"] = (torch.cuda.max_memory_allocated() - before) / 2**30
    return row


@torch.no_grad()
def evaluation(kind: str, depth: int, repeats: int) -> dict[str, float]:
    """Time the frozen model in IEEE float32; a frozen SOC layer sums 12 terms."""
    torch.manual_seed(0)
    model = _perturbed(network(kind, depth)).eval()
    model = (model if kind == "plain" else freeze(model, 32)).to(DEVICE)
    images = torch.rand(256, 3, 32, 32, device=DEVICE)
    with arithmetic(tf32=False):
        eager = _median(lambda: model(images), repeats)
        return {"eager_ms": eager, "graph_ms": _median(_recorded(lambda: model(images)), repeats)}


@torch.no_grad()
def _ill_conditioned(model: nn.Sequential) -> nn.Sequential:
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
def _perturbed(model: nn.Sequential) -> nn.Sequential:
    """Add noise to square kernels, as training would: they start at the identity, which is too easy a case."""
    for layer in model.modules():
        if isinstance(layer, OrthogonalConv2d) and layer.weight.ndim == 4:
            o, i, k, _ = layer.weight.shape
            if o == i:
                layer.weight.add_(torch.randn_like(layer.weight), alpha=0.15 / (o**0.5 * k))
    return model


def _recorded(call: Callable[[], object]) -> Callable[[], None]:
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _median(call: Callable[[], object], repeats: int) -> float:
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


if __name__ == "__main__":
    main()
