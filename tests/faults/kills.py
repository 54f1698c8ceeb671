"""Training runs that are killed, and what the next command makes of them.

    python tests/faults/kills.py 100

Some runs are killed (SIGKILL) at random times, and one more just before each operation on the run directory: opening
for writing, flushing, renaming, making and removing. One of three commands then has to work: the same one again,
`--resume`, or `--overwrite`; and the weights end bit for bit as those of a run that was never killed. Exit code 1 if a
command fails or a bit differs.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from runs import assert_same
from workers import arguments, spread, versions

SHORT = ["--model.channels=2", "--limit=80", "--trainer.batch_size=32", "--trainer.epochs=4"]
SHORT += ["--trainer.checkpoint_every=1", "--trainer.threads=1", "--device=cpu"]
"""A run of a few seconds with several checkpoints in each epoch."""

NEVER = 10**6
"""More operations than a run has."""

PROGRAM = """
import os, signal, sys
folder, last, seen = os.path.realpath(sys.argv[1]), int(sys.argv[2]), []
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def count(what, path):
    if os.path.realpath(os.fsdecode(path)).startswith(folder):
        seen.append(what)
        if len(seen) == last:
            os.kill(os.getpid(), signal.SIGKILL)

def hook(event, arguments):
    if event == "open" and arguments[2] & writing and isinstance(arguments[0], (str, bytes, os.PathLike)):
        count(event, arguments[0])
    elif event in ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.chmod", "shutil.rmtree"):
        count(event, arguments[0])

flush = os.fsync
def counted_flush(handle):
    count("fsync", f"/proc/self/fd/{handle}")
    flush(handle)

os.fsync = counted_flush
sys.addaudithook(hook)
from lotnet.cli.main import main
code = main(sys.argv[3:])
print(f"{len(seen)} operations", file=sys.stderr)
sys.exit(code)
"""


def command(folder: Path, at: int, *arguments: str) -> list[str]:
    """`lotnet ARGUMENTS`, killed before its operation number `at` on the folder; 0 kills it never."""
    return [sys.executable, "-c", PROGRAM, str(folder), str(at), *arguments]


def run(folder: Path, at: int, *arguments: str, kill_after: float = 600) -> subprocess.CompletedProcess[str]:
    """Run the command. It is killed after so many seconds, with the exit code -9."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole = command(folder, at, *arguments)
    with subprocess.Popen(whole, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=kill_after)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
    return subprocess.CompletedProcess(whole, process.returncode, out, err)


def operations(folder: Path) -> int:
    """Train to the end. Returns the number of moments at which the run could have been killed."""
    done = run(folder, 0, "train", *SHORT, "--out", str(folder))
    assert done.returncode == 0, done.stderr
    return int(done.stderr.split()[-2])


def kill_and_continue(reference: Path, folder: Path, at: int, kill_after: float = 600) -> str:
    """Kill a run, continue it in one of three ways, and compare. Returns the way, or raises an `AssertionError`."""
    again = ("train", *SHORT, "--out", str(folder))
    killed = run(folder, at, *again, kill_after=kill_after)
    if killed.returncode == 0 and at >= NEVER:  # this time it was faster
        shutil.rmtree(folder)
        return kill_and_continue(reference, folder, at, 0.7 * kill_after)
    assert killed.returncode == -9, f"not killed: exit {killed.returncode} {killed.stderr}"
    begun = (folder / "config.yaml").exists()
    ways = {"overwrite": (*again, "--overwrite"), "resume": ("train", "--resume", str(folder)), "again": again}
    way = ("overwrite", "resume")[at % 2] if begun else ("overwrite", "again")[at % 2]
    done = run(folder, 0, *ways[way])
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


def main() -> int:
    settings = arguments(__doc__.splitlines()[0], 100, "kills at random times").parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        moments = operations(Path(name) / "reference")
        duration, rng = time.perf_counter() - start, random.Random(0)
        # The number's parity chooses how a run is continued. A run alone takes `duration`, beside others longer.
        kills = [(NEVER + n, rng.uniform(0.3, 0.9) * duration) for n in range(settings.count)]
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
