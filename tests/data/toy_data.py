"""Random splits for tests."""

from __future__ import annotations

import numpy as np
import torch

from lotnet.data import Split


def random_split(n: int, classes: int, shape: tuple[int, int, int] = (3, 32, 32), seed: int = 0) -> Split:
    """A random split in which class sizes differ by at most one image."""
    rng = np.random.default_rng(seed)
    images = torch.from_numpy(rng.integers(0, 256, (n, *shape), dtype=np.uint8))
    return Split(images, torch.from_numpy(rng.permutation(np.arange(n) % classes)))
