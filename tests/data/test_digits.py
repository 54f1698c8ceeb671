"""The digits in the package are as their docstring says."""

from __future__ import annotations

import pytest
import torch

from lotnet import data
from lotnet.data import cache, digits
from lotnet.data.dataset import stratified
from lotnet.errors import InputError


def test_loads_without_any_preparation(monkeypatch, tmp_path):
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path / "nothing-here"))
    dataset = data.load("digits")
    assert dataset.shape == (1, 8, 8)
    assert dataset.classes == tuple("0123456789")
    assert (len(dataset.train), len(dataset.test)) == (1438, 359)
    assert dataset.train.images.max() == 255
    assert dataset.augmentation == data.Augmentation(padding=1, flip=False)
    assert data.is_prepared("digits")


def test_needs_no_preparing():
    with pytest.raises(InputError, match="part of lotnet"):
        data.prepare("digits", "somewhere")


def test_file_equals_the_digits_of_scikit_learn():
    original = pytest.importorskip("sklearn.datasets").load_digits()
    levels = torch.from_numpy(original.images).long()
    images = ((levels * 255 + 8) // 16).to(torch.uint8)[:, None]
    labels = torch.from_numpy(original.target).long()
    held = stratified(labels, 0.2, 0)
    dataset = digits.read()
    assert torch.equal(dataset.train.images, images[~held])
    assert torch.equal(dataset.train.labels, labels[~held])
    assert torch.equal(dataset.test.images, images[held])
    assert torch.equal(dataset.test.labels, labels[held])
    assert cache.origin(digits.FILE) == "sklearn.datasets.load_digits"
