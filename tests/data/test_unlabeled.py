"""Images without labels, from folders and from the 500K pickle."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import torch

from lotnet.data import pseudo_labeled, unlabeled
from lotnet.errors import InputError


@pytest.fixture
def pickled(tmp_path):
    rng = np.random.default_rng(0)
    content = {
        "data": rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8),
        "extrapolated_targets": rng.integers(0, 10, 12),
    }
    path = tmp_path / "ti_500K_pseudo_labeled.pickle"
    path.write_bytes(pickle.dumps(content))
    return path, content


def test_pickle(pickled):
    path, content = pickled
    split = pseudo_labeled(path)
    assert np.array_equal(split.images.permute(0, 2, 3, 1).numpy(), content["data"])
    assert split.labels.tolist() == content["extrapolated_targets"].tolist()
    assert split.images.is_contiguous()
    assert torch.equal(unlabeled(path, (3, 32, 32)), split.images)


def test_pickle_of_another_side(pickled):
    with pytest.raises(InputError, match="32 x 32 pixels: train on that size, not on 64 x 64"):
        unlabeled(pickled[0], (3, 64, 64))


def test_folder_of_any_depth(image_folder):
    root = image_folder({"x": 2, "deep/y": 3}, size=(40, 30))
    assert unlabeled(str(root), (3, 16, 16)).shape == (5, 3, 16, 16)


def test_empty_folder_and_missing_path(tmp_path):
    with pytest.raises(InputError, match="holds no images"):
        unlabeled(tmp_path, (3, 32, 32))
    with pytest.raises(InputError, match="does not exist: pass a folder of images or ti_500K"):
        unlabeled(tmp_path / "missing", (3, 32, 32))


@pytest.mark.parametrize(
    "content",
    [[1, 2], {"data": np.zeros((2, 4, 4, 3), np.uint8)}, {"data": [1], "extrapolated_targets": [1]}],
    ids=["list", "no targets", "no array"],
)
def test_other_pickles_give_a_clear_error(content, tmp_path):
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match="is not a dict of 'data' and 'extrapolated_targets'"):
        unlabeled(path, (3, 32, 32))


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    class Program:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "mark"),)

    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps({"data": Program()}))
    with pytest.raises(InputError, match="refused"):
        unlabeled(path, (3, 32, 32))
    assert not (tmp_path / "mark").exists()
