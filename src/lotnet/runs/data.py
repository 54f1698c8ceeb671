"""The images of a run, for training and for evaluating the trained model."""

import dataclasses

from torch import Tensor

from lotnet.config import RunConfig
from lotnet.data import Dataset, Split, load
from lotnet.data.counter_rng import permutation
from lotnet.errors import InputError
from lotnet.models import ImageSpec


def load_data(config: RunConfig) -> Dataset:
    """Load the data set of a run. With a limit, each split is reduced to a fixed random subset."""
    dataset = load_with_all_test_images(config)
    if config.limit is None:
        return dataset
    return dataclasses.replace(dataset, test=random_subset(dataset.test, config.limit))


def load_with_all_test_images(config: RunConfig) -> Dataset:
    """Load the data set of a run, with all test images even if the run has a limit."""
    dataset = load(config.data.name, config.data.root, config.data.side)
    if config.limit is None:
        return dataset
    return dataclasses.replace(dataset, train=random_subset(dataset.train, config.limit))


def split_subset(dataset: Dataset, name: str, limit: int | None) -> Split:
    """The split `name`, or a random subset of `limit` images, for evaluating a trained model."""
    if limit is not None and limit < 1:
        raise InputError(f"--limit cannot be {limit}: give 1 or more")
    split: Split = getattr(dataset, name)
    return split if limit is None else split.select(split_subset_indices(name, len(split), limit))


def split_subset_indices(name: str, total: int, limit: int) -> Tensor:
    """Indices of the images of `split_subset` in the whole split.

    Training images are chosen with another key than elsewhere. With the usual key, the subset would mostly be
    validation images, which the model was not trained on.
    """
    return subset_indices(total, limit, (0, 1) if name == "train" else (0,))


def random_subset(split: Split, limit: int) -> Split:
    """At most `limit` random images. Their classes are distributed about as in the whole split."""
    return split.select(subset_indices(len(split), limit))


def subset_indices(total: int, limit: int, key: tuple[int, ...] = (0,)) -> Tensor:
    """Indices of `limit` random images out of `total`, sorted. They depend only on the key."""
    return permutation(total, *key)[:limit].sort().values


def image_spec(dataset: Dataset) -> ImageSpec:
    """The image size, classes and statistics that a model for this data set is built for."""
    return ImageSpec(*dataset.shape, classes=len(dataset.classes), mean=dataset.mean, std=dataset.std)
