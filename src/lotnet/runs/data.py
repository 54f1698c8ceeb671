"""The images of a run: those it is trained with, and parts of them to look at the trained model with."""

import dataclasses

from torch import Tensor

from lotnet.config import RunConfig
from lotnet.data import Dataset, Split, load
from lotnet.data.counter_rng import permutation
from lotnet.errors import InputError
from lotnet.models import ImageSpec


def load_data(config: RunConfig) -> Dataset:
    """The data set of a run; with a limit, the first images of a fixed random order of each split."""
    dataset = with_all_tests(config)
    if config.limit is None:
        return dataset
    return dataclasses.replace(dataset, test=limited(dataset.test, config.limit))


def with_all_tests(config: RunConfig) -> Dataset:
    """The data set of a run, with all test images, also when the training was limited to a part."""
    dataset = load(config.data.name, config.data.root, config.data.side)
    if config.limit is None:
        return dataset
    return dataclasses.replace(dataset, train=limited(dataset.train, config.limit))


def part_of(dataset: Dataset, name: str, limit: int | None) -> Split:
    """The split called `name`, or `limit` images of it to look at a trained model with."""
    if limit is not None and limit < 1:
        raise InputError(f"--limit cannot be {limit}: give 1 or more")
    split: Split = getattr(dataset, name)
    return split if limit is None else split.select(part_places(name, len(split), limit))


def part_places(name: str, total: int, limit: int) -> Tensor:
    """Where the images of `part_of` are in the whole split.

    Training images have an order of their own here: the first of the other are those that training holds out, and a
    part of the split would be mostly images that the model has not seen.
    """
    return limited_places(total, limit, (0, 1) if name == "train" else (0,))


def limited(split: Split, limit: int) -> Split:
    """At most `limit` images, spread over the classes as in the whole."""
    return split.select(limited_places(len(split), limit))


def limited_places(total: int, limit: int, key: tuple[int, ...] = (0,)) -> Tensor:
    """Where the images of a limited split are in the whole one: the first of an order that depends on the key."""
    return permutation(total, *key)[:limit].sort().values


def image_spec(dataset: Dataset) -> ImageSpec:
    """What a model for this data set is built for."""
    return ImageSpec(*dataset.shape, classes=len(dataset.classes), mean=dataset.mean, std=dataset.std)
