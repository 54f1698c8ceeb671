"""Freezing and `lotnet predict` on a CPU, beside another checkout of lotnet: fresh processes in turn, ratios.

    python benchmarks/against.py BEFORE [--rounds 3] [--out results/cpu.md]

BEFORE is a folder with an earlier checkout (`git worktree add BEFORE ae195c3`). Each round does each work once with
the earlier source and once with this one. Times are CPU seconds of one thread, which a busy machine changes little:
for `freeze` those of the call, for `predict` those of the process, from the command to its end. Each checkout has a
cache of its own, which is empty at first. So the first `predict` freezes the model, and later ones use its copy.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from sections import write_section

HERE = Path(__file__).resolve().parents[1]
FREEZE = """
import sys, time, torch
from lotnet import freeze, models
from lotnet.models import LipConvnet
try:
    images = models.ImageSpec(3, 32, 32, 10)
except AttributeError:  # as it was called at first
    images = models.Images(3, 32, 32, 10, mean=(0.5, 0.5, 0.5), std=0.25)
torch.manual_seed(0)
torch.set_num_threads(1)
network = LipConvnet(depth=int(sys.argv[1]), start=sys.argv[2]).build(images).eval()
begin = time.process_time()
freeze(network, 32)
print(time.process_time() - begin)
"""


SHIPPED = """
import time, torch
from lotnet.pretrained import FOLDER, packed
torch.set_num_threads(1)
kernels = packed.read(FOLDER / "lipconvnet5-cifar10")
begin = time.process_time()
kernels.unpack()
print(time.process_time() - begin)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the table into this page")
    options = parser.parse_args()
    text = (
        "CPU seconds of one thread, beside an earlier commit: for freezing those of the call, for `predict` those of "
        "the process.\nMedians, and the median over rounds of before / now.\n\n    git worktree add BEFORE ae195c3 && "
        f"python benchmarks/against.py BEFORE --rounds {options.rounds} --out results/cpu.md\n\n"
        "| work | before, s | now, s | ratio |\n|---|---|---|---|\n"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        picture = folder / "photo.png"
        Image.effect_noise((32, 32), 60).convert("RGB").save(picture)
        sources = {"before": options.before.resolve(), "now": HERE}
        for work, words, rounds in works(picture, options.rounds):
            times = [
                {side: run(source, words, folder / side) for side, source in sources.items()} for _ in range(rounds)
            ]
            before, now = (statistics.median(seconds[side] for seconds in times) for side in sources)
            ratio = statistics.median(seconds["before"] / seconds["now"] for seconds in times)
            text += f"| {work} | {before:.1f} | {now:.1f} | {ratio:.1f} |\n"
            print(text.splitlines()[-1], flush=True)
    if options.out:
        write_section(options.out, "Freezing and `lotnet predict`", text)


def works(picture: Path, rounds: int) -> list[tuple[str, list[str], int]]:
    """What is timed: its name, the arguments of Python, and how often."""
    starts = {"identity": "as at the start of training", "random": "random"}
    found = [
        (f"freeze LipConvnet-{depth}, 32 channels, kernels {kernels}", ["-c", FREEZE, str(depth), start], rounds)
        for depth in (5, 20)
        for start, kernels in starts.items()
    ]
    found.append(("freeze the shipped LipConvnet-5, trained kernels", ["-c", SHIPPED], rounds))
    predict = ["-m", "lotnet", "predict", "lipconvnet5-cifar10", str(picture)]
    return [
        *found,
        ("`lotnet predict lipconvnet5-cifar10 photo.png`, first call", predict, 1),
        ("the same, later calls", predict, rounds),
    ]


def run(source: Path, words: list[str], home: Path) -> float:
    """CPU seconds: what the program prints, or else those of the whole process."""
    home.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home)}
    before = _seconds_of_children()
    done = subprocess.run([sys.executable, *words], env=environment, cwd=home, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stdout) if "-c" in words else _seconds_of_children() - before


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
