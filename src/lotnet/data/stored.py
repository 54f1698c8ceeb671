"""Images that stay in a file, so that a data set may be larger than memory.

Contract of `StoredImages`: it stands for a uint8 tensor n c h w. `read` returns rows of it, and `select` another
`StoredImages`. The file is mapped into memory only during `read`, and anew for each part of scattered rows, so the
memory in use depends on the rows that are read, and not on the size of the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

Index = Tensor | slice
"""Which rows: a boolean mask, whole numbers, or a slice."""

_PART = 16 * 2**20
"""Bytes of the file that scattered images may bring into memory at a time."""
_AROUND = 2**16
"""Bytes that an operating system maps around a page that is read: 64 KiB on Linux."""


@dataclass(frozen=True, eq=False)
class StoredImages:
    """Images in a file: `count` images of `shape` (c, h, w), one byte for each level, from byte `offset` on."""

    path: Path
    offset: int
    count: int
    shape: tuple[int, int, int]
    rows: Tensor | None = None
    """Indices in the file; None is all of them, in order."""

    def __len__(self) -> int:
        return self.count if self.rows is None else len(self.rows)

    @property
    def nbytes(self) -> int:
        return len(self) * prod(self.shape)

    def select(self, index: Index) -> StoredImages:
        """The chosen images. Nothing is read."""
        rows = torch.arange(self.count) if self.rows is None else self.rows
        return StoredImages(self.path, self.offset, self.count, self.shape, rows[index])

    def read(self, index: Index = slice(None)) -> Tensor:
        """Read the chosen images into memory."""
        if self.rows is None and isinstance(index, slice):
            return torch.from_numpy(np.array(self._mapped()[index]))
        rows = torch.arange(self.count) if self.rows is None else self.rows
        chosen = rows[index.cpu() if isinstance(index, Tensor) else index].numpy()
        images = np.empty((len(chosen), *self.shape), np.uint8)
        step = max(1, _PART // (prod(self.shape) + _AROUND))
        for start in range(0, len(chosen), step):
            part = slice(start, start + step)
            images[part] = self._mapped()[chosen[part]]
        return torch.from_numpy(images)

    def _mapped(self) -> np.memmap:
        """The images in the file. Pages that are read count as memory in use until the map is dropped."""
        return np.memmap(self.path, np.uint8, "r", self.offset, (self.count, *self.shape))
