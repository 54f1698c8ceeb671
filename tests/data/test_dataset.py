"""Invariants of `Dataset`, and how it is split."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_data import random_split

from lotnet.data import Augmentation, Dataset, Split, cache, hide_labels, load, validation_split
from lotnet.data.dataset import stratified
from lotnet.errors import InputError


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64)),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64)),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int32)),
        (torch.zeros(0, 3, 4, 4, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64)),
    ],
    ids=["float", "3-dimensional", "lengths", "int32", "empty"],
)
def test_split_refuses(images, labels):
    with pytest.raises(InputError):
        Split(images, labels)


def test_dataset_refuses_labels_out_of_range():
    good, bad = random_split(8, 4), random_split(8, 5)
    with pytest.raises(InputError, match="test labels from 0 to 4: renumber"):
        Dataset("toy", good, bad, ("a", "b", "c", "d"))
    negative = Split(good.images, good.labels - 1)
    with pytest.raises(InputError, match="train labels from -1 to 2"):
        Dataset("toy", negative, good, ("a", "b", "c", "d"))


def test_dataset_refuses_one_class_equal_names_and_unequal_shapes():
    split = random_split(8, 2)
    with pytest.raises(InputError, match="at least two"):
        Dataset("toy", split, split, ("a",))
    with pytest.raises(InputError, match="rename"):
        Dataset("toy", split, split, ("a", "a"))
    with pytest.raises(InputError, match="resize"):
        Dataset("toy", split, random_split(8, 2, (3, 16, 16)), ("a", "b"))


def test_statistics_come_from_train(dataset):
    pixels = dataset.train.images.double() / 255
    assert dataset.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), rel=1e-12)
    channels = pixels.permute(1, 0, 2, 3).flatten(1)
    assert dataset.std == pytest.approx(float(channels.std(1, correction=0).mean()), rel=1e-12)


def test_a_source_owns_std_and_augmentation(dataset, tmp_path):
    """The std of CIFAR is the published one, and a mirrored digit is no digit. Other data sets have the defaults."""
    cifar = Dataset("cifar100", dataset.train, dataset.test, dataset.classes)
    cache.write(cifar, tmp_path / "cifar100.safetensors", "made up")
    assert load("cifar100", tmp_path).std == 0.2507
    assert load("cifar100", tmp_path).augmentation == Augmentation() == dataset.augmentation
    digits = load("digits")
    assert digits.augmentation == Augmentation(padding=1, flip=False)
    assert digits.published_std is None


def test_a_single_colour_has_no_std(dataset):
    grey = Split(torch.full_like(dataset.train.images, 7), dataset.train.labels)
    with pytest.raises(InputError, match="one single colour"):
        _ = Dataset("toy", grey, dataset.test, dataset.classes).std


def test_recommended_augmentation(dataset):
    assert dataset.augmentation == Augmentation(padding=4, flip=True)


def test_validation_is_a_stratified_twentieth():
    train = random_split(1000, 10, (1, 2, 2))
    rest, validation = validation_split(train)
    assert torch.bincount(validation.labels).tolist() == [5] * 10
    assert len(rest) + len(validation) == 1000
    together = torch.cat([rest.images, validation.images]).flatten(1)
    assert torch.equal(together.unique(dim=0), train.images.flatten(1).unique(dim=0))


def test_validation_depends_on_the_seed_alone():
    train = random_split(200, 4, (1, 2, 2))
    first, again, other = (validation_split(train, seed=seed)[1].images for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.floats(0.01, 0.99), st.integers(0, 9))
def test_a_stratified_split_has_every_class_on_both_sides(labels, fraction, seed):
    labels = torch.tensor(labels)
    chosen = stratified(labels, fraction, seed)
    for label in labels.unique():
        total, taken = int((labels == label).sum()), int(chosen[labels == label].sum())
        assert abs(taken - fraction * total) <= 1
        assert (0 < taken < total) if total > 1 else taken == 0


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_stratified_refuses_an_empty_side(fraction):
    with pytest.raises(InputError, match="between 0 and 1"):
        stratified(torch.tensor([0, 0, 1, 1]), fraction, 0)


def test_hide_labels_splits_train():
    train = random_split(100, 5, (1, 2, 2))
    labeled, images, hidden = hide_labels(train, 0.2, seed=3)
    assert torch.bincount(labeled.labels).tolist() == [4] * 5
    assert len(images) == len(hidden) == 80
    assert torch.bincount(hidden).tolist() == [16] * 5
