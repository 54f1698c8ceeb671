"""`folder:PATH`: your own images, in one folder per class.

The layout is either `train/<class>/*` and `test/<class>/*`, or `<class>/*`. In the second case a stratified fifth of
the images (seed 0) becomes the test split. Class names are the sorted folder names. Decoded images are cached beside
the prepared data sets, one file per folder and side. They are decoded again when the name, size or modification time of
a file has changed.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch

from lotnet.data import cache
from lotnet.data.dataset import Dataset, Split, stratified
from lotnet.data.images import decode_all, image_files
from lotnet.errors import InputError

PREFIX = "folder:"
SIDE = 32
TEST_FRACTION = 0.2
TEST_SEED = 0


def load(name: str, root: Path, side: int = SIDE) -> Dataset:
    """Load the data set `folder:PATH`, from the cache under `root` if it is up to date."""
    path = Path(name.removeprefix(PREFIX)).expanduser()
    state = _fingerprint(path)
    where = hashlib.sha256(f"{path.resolve()}\n{side}".encode()).hexdigest()[:16]
    cached = root / f"folder-{where}.safetensors"
    if cache.origin(cached) == state:
        try:
            return replace(cache.read(cached), name=name)  # one folder can be named by several paths
        except InputError:
            pass  # the cached copy is damaged: decode the images again
    dataset = read(path, side, name)
    cache.write(dataset, cached, state)
    return dataset


def read(path: Path, side: int, name: str) -> Dataset:
    """Decode the images in `path`."""
    if _has_splits(path):
        classes = _classes(path / "train")
        strange = sorted(set(_classes(path / "test")) - set(classes))
        if strange:
            raise InputError(f"{path}/test has the class {strange[0]!r} that train has not: add it there or remove it")
        train, test = (_read_split(path / part, classes, side) for part in ("train", "test"))
        return Dataset(name, train, test, tuple(classes))
    classes = _classes(path)
    everything = _read_split(path, classes, side)
    held = stratified(everything.labels, TEST_FRACTION, TEST_SEED)
    if not held.any():
        raise InputError(f"{path} has one image per class, so nothing is left to test on: add images")
    return Dataset(name, everything.select(~held), everything.select(held), tuple(classes))


def _has_splits(path: Path) -> bool:
    """Whether `path` contains the folders train and test."""
    if not path.is_dir():
        raise InputError(f"{path} is not a folder: pass one that holds a folder of images for each class")
    train, test = path / "train", path / "test"
    if train.is_dir() and not test.is_dir() and any(entry.is_dir() for entry in train.iterdir()):
        raise InputError(f"{path} has train but no test: add test, or put the class folders directly into {path}")
    return train.is_dir() and test.is_dir()


def _classes(path: Path) -> list[str]:
    classes = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(classes) < 2:
        found = f"only the class folder {classes[0]!r}" if classes else "no class folders"
        raise InputError(f"{path} has {found}: put the images into at least two folders, one per class")
    return classes


def _read_split(path: Path, classes: list[str], side: int) -> Split:
    """Decode the images, class by class. The test split may lack a class folder, but no folder may be empty."""
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        members = image_files(path / name)
        if not members and (path / name).is_dir():
            raise InputError(f"{path / name} holds no images: add some or remove the folder")
        files += members
        labels += [label] * len(members)
    return Split(decode_all(files, side), torch.tensor(labels))


def _fingerprint(path: Path) -> str:
    """A digest of names, sizes and modification times, which needs no file to be opened."""
    digest = hashlib.sha256()
    for file in image_files(path):
        status = file.stat()
        digest.update(f"{file.relative_to(path)}\n{status.st_size}\n{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
