"""A short training run whose operations on its folder fail: it is killed, or the system refuses.

Each run is a process of its own. It is forked from a server that has imported lotnet and done nothing else, because the
imports take five times as long as the run.
"""

import datetime
import errno
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

SHORT = ["--model.channels=2", "--limit=80", "--trainer.batch_size=32", "--trainer.epochs=4"]
SHORT += ["--trainer.checkpoint_every=1", "--trainer.threads=1", "--device=cpu"]
"""A run with several checkpoints in each epoch."""

NEVER = 10**6
"""More operations than a run has."""

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["lotnet.cli.verbs.train", "lotnet.training.run"])


class Started:
    """A command that runs in a process of its own."""

    def __init__(self, process: ForkServerProcess, folder: "tempfile.TemporaryDirectory[str]") -> None:
        self._process, self._folder = process, folder

    def finish(self, kill_after: float = 600) -> "subprocess.CompletedProcess[str]":
        """Wait for its end. It is killed after so many seconds, with the exit code -9."""
        for _ in range(2):  # a pause of both processes that outlasts one wait is no hang
            self._process.join(kill_after / 2)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        with self._folder as name:
            out, err = ((Path(name) / stream).read_text() for stream in ("stdout", "stderr"))
        return subprocess.CompletedProcess("lotnet", int(self._process.exitcode or 0), out, err)


def start(folder: Path, *arguments: str, at: int = 0, fault: str = "kill") -> Started:
    """Start `lotnet ARGUMENTS`. From its operation number `at` on the folder on, if that is not 0, it has a fault.

    A fault is "kill", the name of an error that every such operation ends in, or "clock", which goes backwards.
    """
    output = tempfile.TemporaryDirectory()
    for name in ("stdout", "stderr"):
        Path(output.name, name).touch()
    process = _SERVER.Process(target=_run, args=(os.path.realpath(folder), at, fault, arguments, output.name))
    with _one_thread():
        process.start()
    return Started(process, output)


def run(
    folder: Path, *arguments: str, at: int = 0, fault: str = "kill", kill_after: float = 600
) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end, or kill it after so many seconds."""
    return start(folder, *arguments, at=at, fault=fault).finish(kill_after)


def operations(folder: Path) -> int:
    """Train to the end. Returns the number of operations on the folder."""
    done = run(folder, "train", *SHORT, "--out", str(folder))
    assert done.returncode == 0, done.stderr
    return int(done.stderr.split()[-2])


@contextmanager
def _one_thread() -> Iterator[None]:
    """The first process starts the server, which keeps the environment that it finds."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


# In the process of the command.


def _run(folder: str, at: int, fault: str, arguments: tuple[str, ...], output: str) -> None:
    for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
        os.dup2(os.open(Path(output) / name, os.O_WRONLY), stream.fileno())
    seen = _disturb(folder, at, fault)
    if fault == "clock":
        _set_back_the_clock()
    from lotnet.cli.main import main

    code = main(list(arguments))
    print(f"{len(seen)} operations", file=sys.stderr)
    sys.exit(code)


def _disturb(folder: str, at: int, fault: str) -> list[str]:
    """Count the operations on a folder in the returned list, and let them fail. Lasts as long as the process."""
    seen: list[str] = []
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    removing = ("os.remove", "os.rmdir", "os.chmod")

    def count(what: str, path: Any) -> None:
        if not os.path.realpath(os.fsdecode(path)).startswith(folder):
            return
        seen.append(what)
        if fault == "kill":
            if len(seen) == at:
                os.kill(os.getpid(), signal.SIGKILL)
        elif 0 < at <= len(seen) and not (fault in ("ENOSPC", "EDQUOT") and what in removing):
            number = getattr(errno, fault)
            raise OSError(number, os.strerror(number), path)

    def hook(event: str, given: tuple[Any, ...]) -> None:
        opened = event == "open" and given[2] & writing and isinstance(given[0], str | bytes | os.PathLike)
        if opened or event in ("os.mkdir", "os.rename", "shutil.rmtree", *removing):
            count(event, given[0])

    flush: Callable[[int], None] = os.fsync

    def counted_flush(handle: int) -> None:
        count("fsync", Path(f"/proc/self/fd/{handle}").readlink())
        flush(handle)

    os.fsync = counted_flush  # type: ignore[assignment]
    sys.addaudithook(hook)
    return seen


def _set_back_the_clock() -> None:
    """Each look at the clock is a day earlier than the one before."""
    days, real, Real = itertools.count(), time.time, datetime.datetime

    class Backwards(Real):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, zone: datetime.tzinfo | None = None) -> datetime.datetime:
            return Real.now(zone) - datetime.timedelta(days=next(days))

    datetime.datetime = Backwards  # type: ignore[misc]
    time.time = lambda: real() - 86400 * next(days)
    time.time_ns = lambda: int(1e9 * time.time())
