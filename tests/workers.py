"""Work spread over processes, with limits on the time and memory of each piece.

`make falsify`, `make faults` and `make fuzz` use it. Results come in order, so they do not depend on the number of
processes.
"""

import argparse
import contextlib
import faulthandler
import multiprocessing
import os
import platform
import resource
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import torch

import lotnet

Piece = TypeVar("Piece")
Result = TypeVar("Result")

SECONDS, BYTES = 30, 4 * 2**30
"""What one piece may take: time, and memory beyond what the process has at its start."""


def spread(work: Callable[[Piece], Result], pieces: Iterable[Piece], workers: int) -> Iterator[Result]:
    """Yield `work(piece)` for each piece, in order. A worker that dies raises `BrokenProcessPool`.

    `pieces` may have no end: close the iterator, and the rest is left undone.
    """
    if workers == 1:
        yield from map(work, pieces)
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _prepare)
    try:
        pending: deque[Future[Result]] = deque()
        for piece in pieces:
            pending.append(pool.submit(work, piece))
            if len(pending) >= 3 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Allow this process `BYTES` more than it has mapped now. An allocation beyond that fails."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def limited_time(seconds: int = SECONDS) -> Iterator[None]:
    """Raise a `TimeoutError` in the block after so many seconds.

    Where the interpreter does not get to that, inside a long call of C, the process ends ten seconds later.
    """
    before = signal.signal(signal.SIGALRM, _too_slow)
    faulthandler.dump_traceback_later(seconds + 10, exit=True, file=sys.__stderr__)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def peak_memory() -> int:
    """Largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def arguments(summary: str, count: int, unit: str) -> argparse.ArgumentParser:
    """A parser for a harness with one budget and a number of processes."""
    parser = argparse.ArgumentParser(description=summary, allow_abbrev=False)
    parser.add_argument("count", type=int, nargs="?", default=count, help=f"{unit} (default: %(default)s)")
    return with_workers(parser)


def with_workers(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--workers", type=int, default=cores, help="processes (default: all cores, %(default)s)")
    return parser


def versions(*packages: str) -> str:
    """What a figure was made with, in one line."""
    named = ", ".join(f"{name} {version(name)}" for name in packages)
    named = f"lotnet {lotnet.__version__}, torch {torch.__version__}{', ' * bool(named)}{named}"
    return f"{named}, Python {platform.python_version()}, {platform.machine()}, {time.strftime('%Y-%m-%d')}"
