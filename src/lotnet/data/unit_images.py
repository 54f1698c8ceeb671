"""Images as pixels in [0, 1], converted when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lotnet.data.batches import to_unit
from lotnet.data.stored import Index, StoredImages


@dataclass(frozen=True, eq=False)
class UnitImages:
    """Stands for a floating-point tensor n c h w of pixels in [0, 1], of which only the chosen images are in memory.

    >>> images = UnitImages(torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1))
    >>> len(images), images[1:].flatten().tolist()
    (3, [0.2, 1.0])
    """

    levels: Tensor | StoredImages  # n c h w, uint8
    """`Split.pixels`, for instance."""
    dtype: torch.dtype = torch.float64

    def __len__(self) -> int:
        return len(self.levels)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.levels), *self.levels.shape[-3:])

    def __getitem__(self, index: Index, /) -> Tensor:
        """The chosen images, in that order."""
        levels = self.levels[index] if isinstance(self.levels, Tensor) else self.levels.read(index)
        return to_unit(levels, self.dtype)
