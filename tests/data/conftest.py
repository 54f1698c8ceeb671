"""Small data sets with known contents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toy_data import random_split

from lotnet.data import Dataset


@pytest.fixture
def dataset() -> Dataset:
    return Dataset("toy", random_split(40, 4), random_split(8, 4, seed=1), ("a", "b", "c", "d"))


@pytest.fixture
def image_folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes `counts` = {relative folder: number of images} as PNGs of random pixels; returns the root."""

    def write(counts: dict[str, int], size: tuple[int, int] = (32, 32), name: str = "images") -> Path:
        rng = np.random.default_rng(0)
        for folder, count in counts.items():
            target = tmp_path / name / folder
            target.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
                Image.fromarray(pixels).save(target / f"{number:03}.png")
        return tmp_path / name

    return write
