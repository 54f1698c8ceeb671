"""The interface of a data set that `load` knows by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lotnet.data.dataset import Augmentation, Dataset


@dataclass(frozen=True)
class Source:
    """How to obtain one data set.

    Contract: `read(origin)` returns a valid `Dataset` or raises `InputError`. It uses the network only if `origin` is
    "npm" or "download"; any other origin is a path. It runs no code from the data.
    """

    about: str
    """One line of description."""
    read: Callable[[str], Dataset]
    """Read the data set from ORIGIN, as in `lotnet data prepare NAME --from ORIGIN`."""
    origins: tuple[str, ...] = ()
    """Values of ORIGIN, the easiest first. Upper case means a path. Empty if the data set comes with the package."""
    augmentation: Augmentation = Augmentation()  # noqa: RUF009 (immutable)
    """The usual augmentation, `standard`. The default is for natural images."""
    std: float | None = None
    """The standard deviation that papers use; by default it is computed from the training images."""
