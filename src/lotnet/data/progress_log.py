"""Lines in the log `lotnet` during long work on many images, so that nobody waits without a word.

The log is Python's `logging`, at level INFO: the command line prints it, and a program that uses lotnet can.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

EVERY = 10.0
"""Seconds between two lines. Work that ends earlier is silent."""

_log = logging.getLogger("lotnet.data")


def log_progress(parts: Iterable[T], what: str, total: int, count: Callable[[T], int]) -> Iterator[T]:
    """The parts, one after another, with a line now and then: how many of `total` images are done.

    `count` says how many images a part has.
    """
    done, last = 0, time.perf_counter()
    for part in parts:
        yield part
        done += count(part)
        now = time.perf_counter()
        if now - last >= EVERY and done < total:
            last = now
            _log.info("%s: %s of %s images", what, f"{done:,}", f"{total:,}")
