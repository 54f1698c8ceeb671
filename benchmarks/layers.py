"""How fast are the layers, and how much memory do they take?

One training step (forward and backward, a batch of 64, 3 x 3 kernels, as many channels out as in) of every
parametrization, of LOT as the paper prints it (`literal_lot.py`), of a plain `nn.Conv2d`, and of orthogonium's AOC and
deel-torchlip's SpectralConv2d where they are installed; then one evaluation of frozen LOT against a plain convolution.

    python benchmarks/layers.py [--rounds 5] [--sizes 32x32 128x16 256x8] [--out results/layers.md]
    python benchmarks/layers.py --variants 64x16 [--device cuda] [--rounds 9] [--out results/layer_variants.md]

The second form measures grouped, dilated, transposed and 1-D layers instead: see `layer_variants.py`.

Times are medians over rounds. Every layer runs once in each round, so that a busy moment of the machine affects all
layers alike; one process measures them. Memory is measured in a separate process for each layer: the peak of two steps
minus the resident memory before them, when library code is loaded and weights, input and output gradient exist.
"""

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from layer_variants import Workload
from layer_variants import table as variants_table
from literal_lot import LiteralLOT
from lotnet import OrthogonalConv2d, freeze
from lotnet.parametrizations import PARAMETRIZATIONS

BATCH = 64
SIZES = ("32x32", "128x16", "256x8")  # channels x side


def _random(layer: nn.Module) -> nn.Module:
    """Make every kernel random: some layers start at the identity, which is too easy a case."""
    for parameter in layer.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return layer


def _aoc(channels: int) -> nn.Module:
    from orthogonium.layers import AdaptiveOrthoConv2d

    return AdaptiveOrthoConv2d(channels, channels, 3, padding="same", padding_mode="zeros")


def _torchlip(channels: int) -> nn.Module:
    from deel.torchlip import SpectralConv2d

    return SpectralConv2d(channels, channels, 3, padding=1)


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "nn.Conv2d": lambda c: nn.Conv2d(c, c, 3, padding=1),
    "literal_lot": lambda c: LiteralLOT(c, c, 3),
    **{
        name: lambda c, name=name: _random(OrthogonalConv2d(c, c, 3, parametrization=name)) for name in PARAMETRIZATIONS
    },
}
if find_spec("orthogonium"):
    LAYERS["orthogonium AOC"] = _aoc
if find_spec("deel") and find_spec("deel.torchlip"):
    LAYERS["deel-torchlip SpectralConv2d"] = _torchlip


def training_step(name: str, channels: int, side: int) -> Callable[[], None]:
    torch.manual_seed(0)
    layer = LAYERS[name](channels)
    x = torch.randn(BATCH, channels, side, side, requires_grad=True)
    gradient = torch.randn(BATCH, channels, side, side)

    def step() -> None:
        x.grad = None
        layer.zero_grad(set_to_none=True)
        layer(x).backward(gradient)

    return step


def evaluations(channels: int, side: int) -> dict[str, Callable[[], Tensor]]:
    """A plain and a frozen layer. In a chain, a frozen layer reads another one's output, in its preferred memory
    format."""
    torch.manual_seed(0)
    plain = nn.Conv2d(channels, channels, 3, padding=1).eval()
    frozen = freeze(nn.Sequential(_random(OrthogonalConv2d(channels, channels, 3))), side)
    x = torch.randn(BATCH, channels, side, side)
    with torch.no_grad():
        chained = frozen(x)
    return {
        "nn.Conv2d": lambda: plain(x),
        "frozen LOT": lambda: frozen(x),
        "frozen LOT in a chain": lambda: frozen(chained),
    }


def measure_times(channels: int, side: int, rounds: int) -> dict[str, dict[str, float]]:
    steps = {name: training_step(name, channels, side) for name in LAYERS}
    training = _medians(steps, rounds)
    steps.clear()
    gc.collect()
    with torch.no_grad():
        evaluation = _medians(evaluations(channels, side), 10 * rounds)
    return {"training": training, "evaluation": evaluation}


def _medians(functions: dict[str, Callable], rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for lap in range(rounds + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if lap:  # the first lap warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def measure_memory(name: str, channels: int, side: int) -> float:
    """Mebibytes that a training step needs on top of weights, input and output gradient."""
    training_step(name, 4, 8)()  # loads libraries that are loaded on first use
    step = training_step(name, channels, side)
    gc.collect()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    step()
    step()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1])


def worker(*arguments: str) -> dict:
    """Measure in a fresh process and return the result; a failed process prints its own error."""
    command = [sys.executable, __file__, "--worker", *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def table(size: str, times: dict[str, dict[str, float]], memory: dict[str, float]) -> str:
    channels, side = size.split("x")
    training, evaluation = times["training"], times["evaluation"]
    lines = [
        f"## {channels} channels, {side} x {side}",
        "",
        "| training step | seconds | against nn.Conv2d | literal_lot / this | peak MiB | literal_lot / this |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, seconds in training.items():
        against, gain = seconds / training["nn.Conv2d"], training["literal_lot"] / seconds
        saving = memory["literal_lot"] / memory[name]
        lines.append(f"| {name} | {seconds:.3f} | {against:.1f} | {gain:.1f} | {memory[name]:.0f} | {saving:.1f} |")
    lines += ["", "| evaluation | milliseconds | against nn.Conv2d |", "|---|---:|---:|"]
    for name, seconds in evaluation.items():
        lines.append(f"| {name} | {1000 * seconds:.1f} | {seconds / evaluation['nn.Conv2d']:.2f} |")
    return "\n".join(lines)


def _versions() -> str:
    versions = []
    for package in ("torch", "lotnet", "orthogonium", "deel-torchlip"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} not installed")
    return ", ".join(versions)


def header(command: str) -> str:
    return (
        "# Speed and memory of the layers\n\n"
        f"`{command}`, {datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {_versions()}.\n"
        f"CPU: {_processor()}, {torch.get_num_threads()} thread(s), float32, batch {BATCH}, 3 x 3 kernels, zeros.\n\n"
        "Ratios are of one run. `against nn.Conv2d` is how many plain convolutions one step costs; "
        "`literal_lot / this` how many times less than the paper's algorithm as printed."
    )


def _processor() -> str:
    found = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return found[0].split(":")[1].strip() if found else platform.machine()


def _variants(options: argparse.Namespace) -> None:
    torch.set_float32_matmul_precision("high")  # as training has it; on a CPU it changes nothing
    sizes = (map(int, size.split("x")) for size in options.variants)
    text = [_variants_header(options)]
    for channels, side in sizes:
        text.append(variants_table(Workload(channels, side, options.batch, options.device), options.rounds))
    print("\n\n".join(text))
    if options.out:
        options.out.write_text("\n\n".join(text) + "\n")


def _variants_header(options: argparse.Namespace) -> str:
    device = torch.cuda.get_device_name() if options.device == "cuda" else _processor()
    arguments = f"--variants {' '.join(options.variants)} --device {options.device} --batch {options.batch}"
    return (
        "# Speed of grouped, dilated, transposed and 1-D layers\n\n"
        f"`python benchmarks/layers.py {arguments} --rounds {options.rounds}`, {datetime.now(UTC):%Y-%m-%d}, "
        f"{_versions()}. {device}, {torch.get_num_threads()} thread(s), float32."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measurements of every layer")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="CHANNELSxSIDE")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    parser.add_argument("--variants", nargs="+", metavar="CHANNELSxSIDE", help="measure the variants at these sizes")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of the variants")
    parser.add_argument("--batch", type=int, default=BATCH, help="images of the variants (default: %(default)s)")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        what, size, argument = options.worker
        channels, side = map(int, size.split("x"))
        result = (
            measure_times(channels, side, int(argument))
            if what == "times"
            else {"peak": measure_memory(argument, channels, side)}
        )
        print(json.dumps(result))
        return
    if options.variants:
        _variants(options)
        return
    threads = f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']} " if "OMP_NUM_THREADS" in os.environ else ""
    command = f"{threads}python benchmarks/layers.py --rounds {options.rounds} --sizes {' '.join(options.sizes)}"
    text = [header(command)]
    print(text[0], flush=True)
    for size in options.sizes:
        times = worker("times", size, str(options.rounds))
        memory = {name: worker("memory", size, name)["peak"] for name in LAYERS}
        text.append(table(size, times, memory))
        print(f"\n{text[-1]}", flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("\n\n".join(text) + "\n")


if __name__ == "__main__":
    main()
