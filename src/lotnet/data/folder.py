"""`folder:PATH`, a person's own images, one folder per class.

Either `train/<class>/*` and `test/<class>/*`, or `<class>/*`, of which a stratified fifth (seed 0) becomes
test. Class names are the sorted folder names. Decoded images are kept in the cache beside the prepared sets,
one file per folder and side, and decoded again as soon as a file's name, size or time of change differs.
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
    """The data set `folder:PATH`, from the cache under `root` where that is up to date."""
    path = Path(name.removeprefix(PREFIX)).expanduser()
    state = _fingerprint(path)
    where = hashlib.sha256(f"{path.resolve()}\n{side}".encode()).hexdigest()[:16]
    kept = root / f"folder-{where}.safetensors"
    if cache.origin(kept) == state:
        try:
            return replace(cache.read(kept), name=name)  # one folder has many spellings
        except InputError:
            pass  # a damaged copy costs nothing while the images are here
    dataset = read(path, side, name)
    cache.write(dataset, kept, state)
    return dataset


def read(path: Path, side: int, name: str) -> Dataset:
    """The images below `path`, decoded."""
    if _divided(path):
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


def _divided(path: Path) -> bool:
    """Whether `path` has its own train and test."""
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
    """The images of each class in turn; test may lack a class folder, but none may be empty."""
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
    """A digest of names, sizes and times of change: what can be told without opening a file."""
    digest = hashlib.sha256()
    for file in image_files(path):
        status = file.stat()
        digest.update(f"{file.relative_to(path)}\n{status.st_size}\n{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
