"""Freezing and `lotnet predict` on a CPU, beside another checkout of lotnet: fresh processes in turn, ratios.

    python benchmarks/against.py BEFORE [--rounds 3] [--threads 2]

BEFORE is a folder with an earlier checkout (`git worktree add BEFORE ae195c3`). Each round runs each work once with
the earlier source and once with this one, so a busy moment of the machine affects both alike. `freeze` is timed inside
the process, without imports; `predict` is timed as a person sees it, from the command to its end. The user's cache is
an empty folder at first: the first `predict` freezes the model, the later ones may find what the first has kept.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parents[1]
FREEZE = """
import sys, time, torch
from lotnet import freeze
from lotnet import models
from lotnet.models import LipConvnet
try:
    images = models.ImageSpec(3, 32, 32, 10)
except AttributeError:  # as it was called at first
    images = models.Images(3, 32, 32, 10, mean=(0.5, 0.5, 0.5), std=0.25)
torch.manual_seed(0)
torch.set_num_threads(int(sys.argv[2]))
network = LipConvnet(depth=int(sys.argv[1])).build(images).eval()
begin = time.perf_counter()
freeze(network, 32)
print(time.perf_counter() - begin)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print("| work | before, s | now, s | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        picture = folder / "photo.png"
        Image.effect_noise((32, 32), 60).convert("RGB").save(picture)
        sources = {"before": options.before.resolve(), "now": HERE}
        works = {f"freeze LipConvnet-{depth}, 32 channels": ["-c", FREEZE, str(depth)] for depth in (5, 20)}
        works |= {
            f"`lotnet predict lipconvnet5-cifar10 photo.png`, {call} call": [
                *("-m", "lotnet", "predict", "lipconvnet5-cifar10", str(picture)),
            ]
            for call in ("first", "second")
        }
        for work, words in works.items():
            rounds = [
                {side: run(source, words, options.threads, folder / side) for side, source in sources.items()}
                for _ in range(1 if "first" in work else options.rounds)
            ]
            before, now = (statistics.median(times[side] for times in rounds) for side in sources)
            ratio = statistics.median(times["before"] / times["now"] for times in rounds)
            print(f"| {work} | {before:.2f} | {now:.2f} | {ratio:.1f} |", flush=True)


def run(source: Path, words: list[str], threads: int, home: Path) -> float:
    """Seconds of one work: what it prints, or else the time of the whole process."""
    home.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": str(threads)}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home)}
    command = [sys.executable, *words, *([str(threads)] if "-c" in words else [])]
    begin = time.perf_counter()
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stdout) if "-c" in words else time.perf_counter() - begin


if __name__ == "__main__":
    main()
