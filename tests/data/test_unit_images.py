"""Pixels in [0, 1] of images in memory or in a file, of which only the chosen ones are read."""

from __future__ import annotations

import pytest
import torch

from lotnet.data import UnitImages, cache, to_unit
from lotnet.data.stored import StoredImages


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("in_file", [False, True])
def test_they_are_the_tensor_that_they_stand_for(dataset, tmp_path, in_file, dtype):
    cache.write(dataset, tmp_path / "toy.safetensors", "here")
    split = cache.read(tmp_path / "toy.safetensors", in_file=in_file).train
    found, expected = UnitImages(split.pixels, dtype), to_unit(dataset.train.images, dtype)
    assert (len(found), found.shape) == (len(expected), tuple(expected.shape))
    assert isinstance(split.pixels, StoredImages) == in_file
    for index in (slice(None), slice(1, 3), slice(2, 99), torch.tensor([2, 0]), dataset.train.labels == 1):
        assert found[index].dtype == dtype
        assert torch.equal(found[index], expected[index])
