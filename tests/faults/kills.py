"""Training runs that are killed at a write, a flush or a rename, and what the next command makes of them.

    python tests/faults/kills.py 100

Each run is killed (SIGKILL, from within) just before its n-th operation on the run directory. One of three commands
then has to work: the same one again, `--resume`, or `--overwrite`; and the weights end bit for bit as those of a run
that was never killed. Exit code 1 if a command fails or a bit differs.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from runs import assert_same

SHORT = ["--model.channels=2", "--limit=80", "--trainer.batch_size=32", "--trainer.epochs=4"]
SHORT += ["--trainer.checkpoint_every=1", "--trainer.threads=1", "--device=cpu"]
"""A run of a few seconds with several checkpoints in each epoch."""

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


def run(folder: Path, at: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`lotnet ARGUMENTS`, killed before its operation number `at` on the folder; 0 kills it never."""
    command = [sys.executable, "-c", PROGRAM, str(folder), str(at), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def operations(folder: Path) -> int:
    """Train to the end. Returns the number of moments at which the run could have been killed."""
    done = run(folder, 0, "train", *SHORT, "--out", str(folder))
    assert done.returncode == 0, done.stderr
    return int(done.stderr.split()[-2])


def kill_and_continue(reference: Path, folder: Path, at: int) -> str:
    """Kill a run, continue it in one of three ways, and compare. Returns the way, or raises an `AssertionError`."""
    again = ("train", *SHORT, "--out", str(folder))
    killed = run(folder, at, *again)
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


def main() -> int:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    start, failed = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as name:
        reference = Path(name) / "reference"
        moments = operations(reference)
        chosen = sorted({1 + n * moments // wanted for n in range(wanted)} | set(range(1, min(9, moments))))
        for at in chosen:
            try:
                print(f"\rkilled before operation {at} of {moments}", end="", file=sys.stderr)
                kill_and_continue(reference, Path(name) / f"run{at}", at)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed.append(f"operation {at}: {error}")
    print(f"{len(chosen)} kills among {moments} operations: {len(failed)} failed, {time.perf_counter() - start:.0f} s")
    print(*failed, sep="\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
