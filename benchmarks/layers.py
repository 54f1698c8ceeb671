"""How fast are the layers, and how much memory do they take?

One training step (forward and backward, a batch of 64, 3 x 3 kernels, as many channels out as in) of every
parametrization, of LOT as the paper prints it (`literal_lot.py`), of a plain `nn.Conv2d`, and of orthogonium's AOC and
deel-torchlip's SpectralConv2d where they are installed; then one evaluation of frozen LOT against a plain convolution.

    python benchmarks/layers.py --variants 32x32 128x16 --out results/layers.md
    python benchmarks/layers.py --sizes --variants 64x16 --device cuda

`--variants` measures grouped, dilated, transposed and 1-D layers, too: see `layer_variants.py`. Without sizes, as in
the second line, only those.

Times are medians over rounds, on a CPU of processor time, which leaves out what other programs take. Every layer runs
once in each round, so that a busy moment of the machine affects all layers alike; one process measures them. Memory is
measured in a separate process for each layer: the peak of two steps minus the resident memory before them, when library
code is loaded and weights, input and output gradient exist.
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

from layer_variants import VARIANTS, Measured, Workload, measure
from layer_variants import table as variants_table
from literal_lot import LiteralLOT
from lotnet import OrthogonalConv2d, freeze
from lotnet.parametrizations import PARAMETRIZATIONS

BATCH = 64
SIZES = ("32x32", "128x16", "256x8")  # channels x side

Results = tuple[dict[str, dict[str, float]], dict[str, float]]
"""Seconds of each layer in training and in evaluation, and mebibytes of each."""


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
            start = time.process_time()
            function()
            if lap:  # the first lap warms up
                seconds[name].append(time.process_time() - start)
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


def summary(plain: dict[str, Results], variants: dict[str, Measured]) -> str:
    """The ratios that matter most, one row each, with a column for each size."""
    rows: dict[str, dict[str, str]] = {}

    def add(row: str, size: str, ratio: float | None) -> None:
        rows.setdefault(row, {})[size] = "-" if ratio is None else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"

    for size, (times, memory) in plain.items():
        training, evaluation = times["training"], times["evaluation"]
        aoc = training.get("orthogonium AOC")
        add("training step: the paper's algorithm / LOT", size, training["literal_lot"] / training["lot"])
        add("its memory: the paper's algorithm / LOT", size, memory["literal_lot"] / memory["lot"])
        add("training step: LOT / nn.Conv2d", size, training["lot"] / training["nn.Conv2d"])
        add("training step: LOT / orthogonium's AOC", size, aoc and training["lot"] / aoc)
        add(
            "evaluation: frozen LOT in a chain / nn.Conv2d",
            size,
            evaluation["frozen LOT in a chain"] / evaluation["nn.Conv2d"],
        )
    for size, found in variants.items():
        for (variant, training), ratios in found.items():
            if "same operations" in ratios:
                kind = "training step" if training else "evaluation"
                add(f"{kind}: {variant} / plain LOT of the same operations", size, ratios["same operations"])
    sizes = [*dict.fromkeys((*plain, *variants))]
    lines = [f"| ratio | {' | '.join(sizes)} |", "|---|" + "---:|" * len(sizes)]
    lines += [f"| {row} | {' | '.join(found.get(size, '') for size in sizes)} |" for row, found in rows.items()]
    return "\n".join(["## In short", "", "Columns are channels x side of the image.", "", *lines])


def _versions() -> str:
    versions = []
    for package in ("torch", "lotnet", "orthogonium", "deel-torchlip"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} not installed")
    return ", ".join(versions)


def header(options: argparse.Namespace) -> str:
    device = torch.cuda.get_device_name() if options.device == "cuda" else _processor()
    return (
        "# Speed and memory of the layers\n\n"
        f"`{_command(options)}`, commit {_commit()}, {datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, "
        f"{_versions()}.\n"
        f"{device}, {torch.get_num_threads()} thread(s), float32, batch {options.batch}, 3 x 3 kernels, zeros.\n\n"
        "Times are processor time, medians over rounds. Ratios are of one run: every layer runs once in each round.\n"
        "`against nn.Conv2d` is how many plain convolutions one step costs. `literal_lot` is LOT (layer-wise\n"
        "orthogonal training) as the paper prints its algorithm, and `literal_lot / this` how many times more it\n"
        "costs than the layer of that line."
    )


def _command(options: argparse.Namespace) -> str:
    threads = f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']} " if "OMP_NUM_THREADS" in os.environ else ""
    parts = [f"{threads}python benchmarks/layers.py --rounds {options.rounds} --sizes", *options.sizes]
    if options.variants:
        parts += ["--variants", *options.variants, f"--device {options.device}"]
    return " ".join(parts)


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _processor() -> str:
    found = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return found[0].split(":")[1].strip() if found else platform.machine()


def measure_variants(work: Workload, rounds: int) -> Measured:
    torch.set_float32_matmul_precision("high")  # as training has it; on a CPU it changes nothing
    return {
        (variant, training): measure(variant, work, training, rounds)
        for variant in VARIANTS
        for training in (True, False)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=3, help="measurements of every layer; of variants, three times as many"
    )
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), metavar="CHANNELSxSIDE")
    parser.add_argument(
        "--variants", nargs="*", default=[], metavar="CHANNELSxSIDE", help="measure the variants at these"
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of the variants")
    parser.add_argument("--batch", type=int, default=BATCH, help="images of the variants (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
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
    plain: dict[str, Results] = {}
    variants: dict[str, Measured] = {}
    tables = []
    for size in options.variants:
        work = Workload(*map(int, size.split("x")), options.batch, options.device)
        variants[size] = measure_variants(work, 3 * options.rounds)
        tables.append(variants_table(work, variants[size]))
        print(f"{tables[-1]}\n", flush=True)
    for size in options.sizes:
        times = worker("times", size, str(options.rounds))
        memory = {name: worker("memory", size, name)["peak"] for name in LAYERS}
        plain[size] = (times, memory)
        tables.append(table(size, times, memory))
        print(f"{tables[-1]}\n", flush=True)
    text = "\n\n".join([header(options), summary(plain, variants), *tables]) + "\n"
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)


if __name__ == "__main__":
    main()
