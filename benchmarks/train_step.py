"""What does a training step cost, in time and memory, with each kind of layer in one LipConvnet?

    python benchmarks/train_step.py                  # a small network on a CPU
    python benchmarks/train_step.py --device cuda    # LipConvnet-5 and -20 with 32 channels, batch 256

A step is forward, loss, backward and SGD, eager and in IEEE float32. Times are medians over rounds. Every network runs
once in each round, so that a busy moment of the machine affects all of them alike. Ratios are to plain convolutions.
Memory is the peak above weights and batch: on a GPU by PyTorch's allocator, on a CPU in a separate process.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import nn

from lotnet.training.precision import arithmetic
from networks import network

KINDS = ("plain", "lot", "literal", "soc", "cayley")


class Step:
    """One network with its optimiser and a batch."""

    def __init__(self, kind: str, depth: int, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.model = network(kind, depth, options.channels, options.side).to(options.device)
        for parameter in self.model.parameters():
            if parameter.ndim > 2:  # some layers start at the identity, which is too easy a case
                nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.images = torch.rand(options.batch, 3, options.side, options.side, device=options.device)
        self.labels = torch.randint(10, (options.batch,), device=options.device)

    def __call__(self) -> None:
        with arithmetic(tf32=False):
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(self.images), self.labels).backward()
            self.optimizer.step()
        if self.images.is_cuda:
            torch.cuda.synchronize()


def seconds(kinds: list[str], depth: int, options: argparse.Namespace) -> dict[str, float]:
    steps = {kind: Step(kind, depth, options) for kind in kinds}
    for step in steps.values():
        step()
        step()
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind, step in steps.items():
            start = time.perf_counter()
            step()
            times[kind].append(time.perf_counter() - start)
    return {kind: statistics.median(values) for kind, values in times.items()}


def peak_bytes(kind: str, depth: int, options: argparse.Namespace) -> int:
    step = Step(kind, depth, options)
    if options.device != "cpu":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        step()
        return torch.cuda.max_memory_allocated() - before
    gc.collect()
    before = _kibibytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    step()
    step()
    return 1024 * (_kibibytes("VmHWM") - before)


def _kibibytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def peak_bytes_elsewhere(kind: str, depth: int, options: argparse.Namespace) -> int:
    """Measure in a fresh process: on a CPU, the peak includes all earlier work of a process."""
    if options.device != "cpu":
        return peak_bytes(kind, depth, options)
    command = [sys.executable, *sys.argv, "--memory-of", kind, "--depths", str(depth)]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--depths", type=int, nargs="+", help="5, and on a GPU 20")
    parser.add_argument("--channels", type=int, help="of the first stage: 8, on a GPU 32")
    parser.add_argument("--side", type=int, help="of the images: 16, on a GPU 32")
    parser.add_argument("--batch", type=int, help="32, on a GPU 256")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    small = options.device == "cpu"
    defaults = {"depths": [5], "channels": 8, "side": 16, "batch": 32}
    full = {"depths": [5, 20], "channels": 32, "side": 32, "batch": 256}
    for name, value in (defaults if small else full).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.memory_of:
        print(peak_bytes(options.memory_of, options.depths[0], options))
        return

    device = torch.cuda.get_device_name() if not small else f"{torch.get_num_threads()} CPU threads"
    where = f"{device}, torch {torch.__version__}"
    for depth in options.depths:
        times = seconds(options.kinds, depth, options)
        memory = {kind: peak_bytes_elsewhere(kind, depth, options) for kind in options.kinds}
        shape = f"LipConvnet-{depth}, {options.channels} channels, side {options.side}, batch {options.batch}"
        if options.json:
            print(json.dumps({"shape": shape, "where": where, "seconds": times, "peak_bytes": memory}))
            continue
        table = Table("layer", "ms a step", "x plain", "peak MiB", "x plain", title=f"{shape} ({where})")
        for kind in options.kinds:
            row = [kind, f"{1e3 * times[kind]:.1f}", "", f"{memory[kind] / 2**20:.0f}", ""]
            if "plain" in times:
                row[2] = f"{times[kind] / times['plain']:.2f}"
                row[4] = f"{memory[kind] / max(memory['plain'], 1):.2f}"
            table.add_row(*row)
        Console().print(table)


if __name__ == "__main__":
    main()
