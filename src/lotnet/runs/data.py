"""The images of a run, for training and for evaluating the trained model.

A new run of a folder stores the shape of its images: `with_shape` fills it in. Runs of earlier versions did not store
it, and their images are `SHAPE_BEFORE`.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lotnet.config import RunConfig
from lotnet.data import (
    PREFIX,
    Augmentation,
    Channels,
    Dataset,
    Split,
    choose_augmentation,
    choose_shape,
    is_folder,
    load,
    validation_split,
)
from lotnet.data.counter_rng import permutation
from lotnet.data.dataset import stratified
from lotnet.errors import InputError
from lotnet.models import ImageSpec
from lotnet.spelling import counted

SHAPE_BEFORE = {"data.side": 32, "data.channels": "rgb"}
"""Settings of images in a folder that a run of an earlier version left open."""


def with_shape(config: RunConfig) -> RunConfig:
    """The settings of a new run with the shape of its images, which only those of a folder leave open."""
    data = config.data
    if not is_folder(data.name):
        return config
    return config.override(shape_settings(choose_shape(data.name, data.root, data.size, data.channels).shape))


def folder_shape(config: RunConfig) -> tuple[int, int, int] | None:
    """Channels, height and width of the images of a folder, before they are decoded; None for other data sets."""
    data = config.data
    if not is_folder(data.name) or data.size is None or data.channels is None:
        return None
    height, width = data.size if isinstance(data.size, tuple) else (data.size, data.size)
    return 1 if data.channels == "grey" else 3, height, width


def shape_settings(shape: Sequence[int]) -> dict[str, Any]:
    """Settings, by dotted name, for images of the shape (c, h, w) in a folder."""
    _, height, width = shape
    return {
        "data.side": height,
        "data.width": None if width == height else width,
        "data.channels": channels_of(shape),
    }


def about_shape(config: RunConfig, dataset: Dataset) -> str:
    """The shape of the images in words, and how it differs from that of the files."""
    data = config.data
    if is_folder(data.name):
        return choose_shape(data.name, data.root, dataset.shape[1:], channels_of(dataset.shape)).words
    _, height, width = dataset.shape
    return f"{height} x {width} pixels, {'grey' if dataset.shape[0] == 1 else 'RGB'}"


def augmentation_of(config: RunConfig, dataset: Dataset) -> Augmentation:
    """The augmentation of a run. Images of a folder are usually shifted by up to an eighth of the shorter side."""
    data, usual = config.data, dataset.augmentation
    if is_folder(data.name) and data.channels is not None:  # runs of earlier versions shifted by 4 pixels at any size
        usual = dataclasses.replace(usual, padding=min(dataset.shape[1:]) // 8)
    return choose_augmentation(usual, data.augment, data.flip, data.crop)


def channels_of(shape: Sequence[int]) -> Channels:
    """grey or rgb, from the shape of images (c, h, w)."""
    return "grey" if shape[0] == 1 else "rgb"


def load_data(config: RunConfig) -> Dataset:
    """Load the data set of a run. With a limit, each split is reduced to a fixed random subset."""
    dataset = load_with_all_test_images(config)
    if config.limit is None:
        return dataset
    return dataclasses.replace(dataset, test=random_subset(dataset.test, config.limit))


def load_with_all_test_images(config: RunConfig) -> Dataset:
    """Load the data set of a run, with all test images even if the run has a limit."""
    if is_folder(config.data.name):
        missing = {name: v for name, v in SHAPE_BEFORE.items() if getattr(config.data, name.split(".")[1]) is None}
        config = config.override(missing)
    dataset = load(config.data.name, config.data.root, config.data.size, config.data.channels)
    if config.limit is None:
        return dataset
    return dataclasses.replace(dataset, train=random_subset(dataset.train, config.limit), limit=config.limit)


def load_for_model(name: str, shape: Sequence[int], classes: tuple[str, ...], source: str) -> Dataset:
    """Load the data set that the model folder `source` was trained on, in the shape of the model's input (c, h, w).

    A model folder has the name of a folder of images, but not its path, so that folder is looked for where we are.
    """
    _, height, width = shape
    folder = Path(name.removeprefix(PREFIX)).expanduser()
    other = f"run this in the folder that contains {folder}, or name the run instead of the model folder"
    if is_folder(name) and not folder.is_dir():
        raise InputError(f"{source} was trained on the images in {folder}, which is not here: {other}")
    dataset = load(name, side=(height, width), channels=channels_of(shape))
    if is_folder(name) and classes not in ((), dataset.classes):
        raise InputError(f"{source} was trained on other images than those in {folder}, whose classes differ: {other}")
    return dataset


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


def split_training(config: RunConfig, train: Split, validation: Split | None = None) -> tuple[Split, Split | None]:
    """The images to train on and those that choose the best epoch; None where all are trained on.

    The latter are `validation`, or a fixed share of the training images.
    """
    if validation is not None:
        return train, validation
    if not config.data.validation:
        return train, None
    if not held_out(train.labels, config.data.validation).any():
        few, remedy = f"only {counted(len(train), 'training image')} of different classes", "add images"
        if config.limit is not None:
            few, remedy = f"a limit of {counted(config.limit, 'image')}", "raise the limit"
        raise InputError(
            f"with {few}, none is left to choose the best epoch: {remedy}, or train on all with data.validation 0"
        )
    return validation_split(train, config.data.validation)


def held_out(labels: Tensor, share: float) -> Tensor:
    """A mask of the training images with these labels that choose the best epoch and are not trained on."""
    return stratified(labels, share, 0) if share else torch.zeros(len(labels), dtype=torch.bool)


def check_crop(config: RunConfig, dataset: Dataset) -> None:
    """Refuse shifts that could move most of an image out of it."""
    _, height, width = dataset.shape
    crop, largest = config.data.crop, (min(height, width) - 1) // 2
    if crop is not None and crop > largest:
        raise InputError(
            f"data.crop {crop} shifts images of {height} x {width} pixels by half a side or more: give at most "
            f"{largest}"
        )


def image_spec(dataset: Dataset) -> ImageSpec:
    """The image size, classes and statistics that a model for this data set is built for."""
    return ImageSpec(*dataset.shape, classes=len(dataset.classes), mean=dataset.mean, std=dataset.std)
