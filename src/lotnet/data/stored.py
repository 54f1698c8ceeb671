"""Images that stay in a file, so that a data set may be larger than memory.

Contract of `StoredImages`: it stands for a uint8 tensor n c h w. `read` returns rows of it, and `select` another
`StoredImages`. The file is mapped into memory only during `read`, so the memory in use depends on the rows that are
read, and not on the size of the file.
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
        pixels = np.memmap(self.path, np.uint8, "r", self.offset, (self.count, *self.shape))
        if self.rows is None and isinstance(index, slice):
            return torch.from_numpy(np.array(pixels[index]))
        rows = torch.arange(self.count) if self.rows is None else self.rows
        return torch.from_numpy(pixels[rows[index.cpu() if isinstance(index, Tensor) else index].numpy()])
