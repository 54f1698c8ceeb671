"""A short training run whose operations on its folder fail: it is killed, or the system refuses."""

import os
import subprocess
import sys
from pathlib import Path

SHORT = ["--model.channels=2", "--limit=80", "--trainer.batch_size=32", "--trainer.epochs=4"]
SHORT += ["--trainer.checkpoint_every=1", "--trainer.threads=1", "--device=cpu"]
"""A run of a few seconds with several checkpoints in each epoch."""

NEVER = 10**6
"""More operations than a run has."""

PROGRAM = """
import errno, os, signal, sys
folder, at, fault, seen = os.path.realpath(sys.argv[1]), int(sys.argv[2]), sys.argv[3], []
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def count(what, path):
    if not os.path.realpath(os.fsdecode(path)).startswith(folder):
        return
    seen.append(what)
    if fault == "kill":
        if len(seen) == at:
            os.kill(os.getpid(), signal.SIGKILL)
    elif 0 < at <= len(seen) and not (fault in ("ENOSPC", "EDQUOT") and what in ("os.remove", "os.rmdir", "os.chmod")):
        raise OSError(getattr(errno, fault), os.strerror(getattr(errno, fault)), path)

def hook(event, arguments):
    if event == "open" and arguments[2] & writing and isinstance(arguments[0], (str, bytes, os.PathLike)):
        count(event, arguments[0])
    elif event in ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.chmod", "shutil.rmtree"):
        count(event, arguments[0])

flush = os.fsync
def counted_flush(handle):
    count("fsync", os.readlink(f"/proc/self/fd/{handle}"))
    flush(handle)

os.fsync = counted_flush
sys.addaudithook(hook)
if fault == "clock":  # each look at the clock is a day earlier than the one before
    import datetime, itertools, time
    days = itertools.count()
    real, Real = time.time, datetime.datetime
    class Backwards(Real):
        @classmethod
        def now(cls, zone=None):
            return Real.now(zone) - datetime.timedelta(days=next(days))
    datetime.datetime = Backwards
    time.time = lambda: real() - 86400 * next(days)
    time.time_ns = lambda: int(1e9 * time.time())
from lotnet.cli.main import main
code = main(sys.argv[4:])
print(f"{len(seen)} operations", file=sys.stderr)
sys.exit(code)
"""


def start(folder: Path, *arguments: str, at: int = 0, fault: str = "kill") -> subprocess.Popen[str]:
    """Start `lotnet ARGUMENTS`. From its operation number `at` on the folder on, if that is not 0, it has a fault.

    A fault is "kill", the name of an error that every such operation ends in, or "clock", which goes backwards.
    """
    command = [sys.executable, "-c", PROGRAM, str(folder), str(at), fault, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(
    folder: Path, *arguments: str, at: int = 0, fault: str = "kill", kill_after: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end. It is killed after so many seconds, with the exit code -9."""
    with start(folder, *arguments, at=at, fault=fault) as process:
        try:
            out, err = process.communicate(timeout=kill_after)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def operations(folder: Path) -> int:
    """Train to the end. Returns the number of operations on the folder."""
    done = run(folder, "train", *SHORT, "--out", str(folder))
    assert done.returncode == 0, done.stderr
    return int(done.stderr.split()[-2])
