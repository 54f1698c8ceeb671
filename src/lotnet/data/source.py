"""The contract of a data set that `load` knows by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lotnet.data.dataset import Dataset


@dataclass(frozen=True)
class Source:
    """How one data set comes to this machine.

    Invariant: `read(origin)` returns a valid `Dataset` or raises `InputError`. It reaches for the network only if
    `origin` is the word "npm" or "download"; any other origin is a path. It runs no code from the data.
    """

    about: str
    """One line for people who choose."""
    read: Callable[[str], Dataset]
    """From what `lotnet data prepare NAME --from ORIGIN` names."""
    origins: tuple[str, ...] = ()
    """What ORIGIN may be, the easiest first, upper case for a path; none: the set is part of the package."""
