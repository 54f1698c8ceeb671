"""The files of `folder:PATH`: which images there are, of which class and split.

Names are kept as text relative to the folder, because paths of hundreds of thousands of images take much memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lotnet.data.dataset import stratified
from lotnet.data.formats import SUFFIXES, is_named_as_image
from lotnet.data.images import about_skipped, file_names
from lotnet.errors import InputError

PREFIX = "folder:"
TEST_FRACTION = 0.2
TEST_SEED = 0
_SPLITS = ("train", "test")
_OTHER_NAMES = ("val", "valid", "validation")
"""Folders that other tools read as the test split."""


@dataclass(frozen=True, eq=False)
class Files:
    """The images of one split."""

    root: Path
    names: list[str]
    """Relative to the root."""
    labels: Tensor
    skipped: tuple[str, ...] = ()
    """Names of files in the folders of the classes that are no images."""

    def __len__(self) -> int:
        return len(self.names)

    def paths(self) -> Iterator[Path]:
        return (self.root / name for name in self.names)

    def select(self, chosen: Tensor) -> Files:
        """The images for which the mask is true."""
        names = [name for name, keep in zip(self.names, chosen.tolist(), strict=True) if keep]
        return Files(self.root, names, self.labels[chosen])


@dataclass(frozen=True, eq=False)
class Layout:
    classes: tuple[str, ...]
    train: Files
    test: Files
    skipped: tuple[str, ...]
    """Names of files whose names do not end like an image's."""

    def fingerprint(self) -> str:
        """A digest of names, sizes and modification times, which needs no file to be opened.

        It covers what is read, so also images in a class folder that is a symbolic link.
        """
        digest = hashlib.sha256()
        for part, files in (("train", self.train), ("test", self.test)):
            for name in files.names:
                status = os.stat(f"{files.root}/{name}")  # noqa: PTH116 (a Path for each of many images takes long)
                digest.update(f"{part}/{name}\n{status.st_size}\n{status.st_mtime_ns}\n".encode())
        return digest.hexdigest()


def folder_path(name: str) -> Path:
    """PATH of `folder:PATH`."""
    path = name.removeprefix(PREFIX)
    if not path.strip():
        raise InputError(f"{name} does not name a folder: write {PREFIX}PATH, or {PREFIX}. for the current folder")
    return Path(path).expanduser()


def read_layout(path: Path) -> Layout:
    """Find the images in `path`. Raises an `InputError` for folders that are no data set."""
    if not _has_splits(path):
        classes = _classes(path)
        files = _members(path, classes)
        if len(files) == len(classes):
            raise InputError(f"{path} has one image per class, so nothing is left to test on: add images")
        held = stratified(files.labels, TEST_FRACTION, TEST_SEED)
        return Layout(classes, files.select(~held), files.select(held), files.skipped)
    classes = _classes(path / "train")
    strange = sorted(set(_classes(path / "test", fewest=1)) - set(classes))
    if strange:
        raise InputError(f"{path}/test has the class {strange[0]!r} that train has not: add it there or remove it")
    train, test = (_members(path / part, classes) for part in _SPLITS)
    return Layout(classes, train, test, train.skipped + test.skipped)


def unused_folders(path: Path) -> list[str]:
    """Names of the folders with images beside `path`/train and `path`/test, which are not part of the data set."""
    if not _has_splits(path):
        return []
    others = (entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    return sorted(entry.name for entry in others if entry.name not in _SPLITS and _has_images(entry))


def _has_images(folder: Path) -> bool:
    """Whether a file in the folder or below is called like an image. A folder that cannot be read has none."""
    try:
        return any(name.lower().endswith(SUFFIXES) for name in file_names(folder))
    except OSError:
        return False


def _has_splits(path: Path) -> bool:
    """Whether `path` contains the folders train and test."""
    if not path.is_dir():
        raise InputError(f"{path} is not a folder: pass one that holds a folder of images for each class")
    train, test = path / "train", path / "test"
    if train.is_dir() and not test.is_dir() and any(entry.is_dir() for entry in train.iterdir()):
        other = next((name for name in _OTHER_NAMES if (path / name).is_dir()), None)
        remedy = "add test" if other is None else f"rename {other} to test"
        raise InputError(f"{path} has train but no test: {remedy}, or put the class folders directly into {path}")
    return train.is_dir() and test.is_dir()


def _classes(path: Path, fewest: int = 2) -> tuple[str, ...]:
    classes = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(classes) < fewest:
        found = f"only the class folder {classes[0]!r}" if classes else "no class folders"
        remedy = "put the images into at least two folders, one per class"
        if classes and any(entry.is_dir() for entry in (path / classes[0]).iterdir()):
            remedy += f", or pass {PREFIX}{path / classes[0]} if the classes are in there"
        raise InputError(f"{path} has {found}: {remedy}")
    by_letters: dict[str, str] = {}
    for name in classes:
        other = by_letters.setdefault(name.casefold(), name)
        if other != name:
            raise InputError(
                f"{path} has the classes {other!r} and {name!r}, which differ only in case: on many machines "
                "they would be the same folder, so merge them or rename one"
            )
    return tuple(classes)


def _members(path: Path, classes: tuple[str, ...]) -> Files:
    """The image files with their labels. The test split may lack a class folder, but no folder may be empty."""
    names: list[str] = []
    skipped: list[str] = []
    counts = []
    for name in classes:
        there = list(file_names(path / name)) if (path / name).is_dir() else []
        files = [file for file in there if is_named_as_image(file)]
        skipped += [f"{name}/{file}" for file in there if not is_named_as_image(file)]
        if not files and (path / name).is_dir():
            others = f" ({about_skipped(there)})" if there else ""
            raise InputError(f"{path / name} holds no images{others}: add some or remove the folder")
        deep = next((file for file in files if "/" in file), None)
        if deep is not None:
            inner = deep.split("/")[0]
            raise InputError(
                f"{path / name} has the folder {inner!r} with images in it: put the images directly into the folders "
                f"of the classes, or pass the folder that holds these, such as {PREFIX}{path / name}"
            )
        names += [f"{name}/{file}" for file in files]
        counts.append(len(files))
    return Files(path, names, torch.arange(len(classes)).repeat_interleave(torch.tensor(counts)), tuple(skipped))
