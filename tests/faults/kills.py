"""Training runs that are killed, and what the next command makes of them.

    python tests/faults/kills.py 100

Some runs are killed (SIGKILL) at random times, and one more just before each operation on the run directory: opening
for writing, flushing, renaming, making and removing. One of three commands then has to work: the same one again,
`--resume`, or `--overwrite`; and the weights end bit for bit as those of a run that was never killed. Exit code 1 if a
command fails or a bit differs.
"""

import random
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from faulty import NEVER, SHORT, operations, run

from runs import assert_same
from workers import arguments, spread, versions


def kill_and_continue(reference: Path, folder: Path, at: int, kill_after: float = 600) -> str:
    """Kill a run, continue it in one of three ways, and compare. Returns the way, or raises an `AssertionError`."""
    again = ("train", *SHORT, "--out", str(folder))
    killed = run(folder, *again, at=at, kill_after=kill_after)
    if killed.returncode == 0 and at >= NEVER:  # this time it was faster
        shutil.rmtree(folder)
        return kill_and_continue(reference, folder, at, 0.7 * kill_after)
    assert killed.returncode == -9, f"not killed: exit {killed.returncode} {killed.stderr}"
    begun = (folder / "config.yaml").exists()
    ways = {"overwrite": (*again, "--overwrite"), "resume": ("train", "--resume", str(folder)), "again": again}
    way = ("overwrite", "resume")[at % 2] if begun else ("overwrite", "again")[at % 2]
    done = run(folder, *ways[way])
    assert done.returncode == 0 and "Traceback" not in done.stderr, f"{way}: exit {done.returncode} {done.stderr}"
    assert_same(reference, folder)
    left = [path.name for path in folder.rglob(".*")]
    assert not left, f"{way} left {left}"
    return way


def _one(kill: tuple[int, float], folder: Path) -> str:
    """Kill before an operation, or after some seconds. Returns what was wrong, if anything."""
    at, seconds = kill
    with tempfile.TemporaryDirectory(dir=folder) as name:
        try:
            kill_and_continue(folder / "reference", Path(name) / "run", at, seconds)
        except AssertionError as error:
            return f"operation {at}, {seconds:.2f} s: {error}"
    return ""


def _duration(folder: Path) -> float:
    """Seconds of a run alone. Beside others it takes longer."""
    start = time.perf_counter()
    operations(folder)
    return time.perf_counter() - start


def main() -> int:
    settings = arguments(__doc__.splitlines()[0], 100, "kills at random times").parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        moments = operations(Path(name) / "reference")
        duration, rng = _duration(Path(name) / "timed"), random.Random(0)
        # The number's parity chooses how a run is continued.
        kills = [(NEVER + n, rng.uniform(0, 0.95) * duration) for n in range(settings.count)]
        kills += [(at, 600.0) for at in range(1, moments + 1)]
        ends = []
        for end in spread(partial(_one, folder=Path(name)), kills, settings.workers):
            ends.append(end)
            print(f"{len(ends)} of {len(kills)} kills", end="\r", file=sys.stderr, flush=True)
    failed = [end for end in ends if end]
    print(f"{versions()}; {settings.workers} processes of one thread")
    print(f"{settings.count} kills at random times, {moments} before each operation on the run directory: ", end="")
    print(f"{len(failed)} failed, {time.perf_counter() - start:.0f} s")
    print(*failed, sep="\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
