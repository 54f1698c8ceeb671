"""`folder:PATH`: your own images, in one folder per class.

The layout is either `train/<class>/*` and `test/<class>/*`, or `<class>/*`. In the second case a stratified fifth of
the images (seed 0) becomes the test split. Class names are the sorted folder names. Decoded images are cached beside
the prepared data sets, one file per folder and shape. They are decoded again when the name, size or modification time
of a file has changed.

Images keep the pixels of the files where that is possible. `choose_shape` has the rule.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import torch

from lotnet.data import cache
from lotnet.data.dataset import Dataset, Split, stratified
from lotnet.data.images import decode_all, image_files, read_headers
from lotnet.errors import InputError
from lotnet.files import make_folder
from lotnet.records import read_record, write_record

PREFIX = "folder:"
SIDE = 32
"""Side of images that cannot keep their size."""
LARGEST_KEPT = 256
"""Images of one common size keep it if neither height nor width is larger."""
TEST_FRACTION = 0.2
TEST_SEED = 0

Shape = tuple[int, int, int]
Side = int | tuple[int, int]
"""Side of square images, or (height, width)."""
Channels = Literal["grey", "rgb"]
CHANNELS: dict[Channels, int] = {"grey": 1, "rgb": 3}


@dataclass(frozen=True)
class Survey:
    """What the headers of the image files in a folder say."""

    state: str
    """Digest of names, sizes and modification times of the files."""
    images: int
    training: int
    """Number of images in the training split."""
    grey: int
    """Number of grey images."""
    sizes: int
    """Number of different sizes."""
    height: int
    width: int
    """The most frequent size."""


@dataclass(frozen=True)
class Choice:
    """The shape that the images of a folder are decoded to, and the reason in words."""

    shape: Shape
    words: str
    images: int
    """Number of training images."""


def load(name: str, root: Path, side: Side | None = None, channels: Channels | None = None) -> Dataset:
    """Load the data set `folder:PATH`, from the cache under `root` if it is up to date."""
    path = _path(name)
    if side is None or channels is None:
        shape = choose_shape(name, root, side, channels).shape
    else:
        shape = _shape(side, channels)
    state = _fingerprint(path)
    cached = _cached(path, root, shape, "safetensors")
    if cache.origin(cached) == state:
        try:
            return replace(cache.read(cached), name=name)  # one folder can be named by several paths
        except InputError:
            pass  # the cached copy is damaged: decode the images again
    dataset = read(path, shape, name)
    cache.write(dataset, cached, state)
    return dataset


def choose_shape(name: str, root: Path, side: Side | None = None, channels: Channels | None = None) -> Choice:
    """Choose the shape of the decoded images. `side` and `channels` force a part of it.

    Images of one common size keep it, if it is at most `LARGEST_KEPT`; others get the side `SIDE`. If all files are
    grey, images have one channel, otherwise three.
    """
    found = survey(name, root)
    keeps = found.sizes == 1 and max(found.height, found.width) <= LARGEST_KEPT
    if channels is None:
        channels = "grey" if found.grey == found.images else "rgb"
    shape = _shape((found.height, found.width) if side is None and keeps else side or SIDE, channels)
    size, original = f"{shape[1]} x {shape[2]} pixels", f"{found.height} x {found.width}"
    reasons = []
    if found.sizes > 1:
        reasons.append(f"the files have {found.sizes} sizes and are resized")
    elif shape[1:] != (found.height, found.width):
        reasons.append(f"the files have {original} and are resized")
    if reasons and side is None:
        reasons[-1] += " (--data.side chooses another size)"
    if channels == "rgb" and found.grey:
        mixed = f"{found.grey:,} of {found.images:,} files are grey and become RGB"
        reasons.append(f"{mixed} (--data.channels grey makes all grey)" if found.grey < found.images else mixed)
    elif channels == "grey" and found.grey < found.images:
        reasons.append(f"{found.images - found.grey:,} of {found.images:,} files are in colour and become grey")
    colour = {"grey": "grey", "rgb": "RGB"}[channels]
    return Choice(shape, f"{size}, {colour}: {'; '.join(reasons) or 'as in the files'}", found.training)


def survey(name: str, root: Path) -> Survey:
    """Read the headers of all images, or the survey stored under `root` if no file has changed."""
    path = _path(name)
    layout = _layout(path)
    stored, state = _cached(path, root, None, "json"), _fingerprint(path)
    try:
        found = read_record(Survey, stored, "it is made again")
        if found.state == state:
            return found
    except InputError:
        pass
    files = [file for file, _ in (*layout.train, *layout.test)]
    headers = Counter((h.height, h.width, h.is_grey) for h in read_headers(files))
    sizes = Counter({(h, w): 0 for h, w, _ in headers})
    for (h, w, _), count in headers.items():
        sizes[h, w] += count
    (height, width), _ = max(sizes.items(), key=lambda item: (item[1], item[0]))
    grey = sum(count for (_, _, is_grey), count in headers.items() if is_grey)
    training = len(layout.train) if layout.test else round((1 - TEST_FRACTION) * len(files))
    found = Survey(state, len(files), training, grey, len(sizes), height, width)
    make_folder(root, "choose another with LOTNET_DATA")
    write_record(stored, found)
    return found


def read(path: Path, shape: Shape, name: str) -> Dataset:
    """Decode the images in `path`."""
    layout = _layout(path)
    train = _decode(layout.train, shape)
    if layout.test:
        return Dataset(name, train, _decode(layout.test, shape), layout.classes)
    held = stratified(train.labels, TEST_FRACTION, TEST_SEED)
    return Dataset(name, train.select(~held), train.select(held), layout.classes)


def _path(name: str) -> Path:
    return Path(name.removeprefix(PREFIX)).expanduser()


def _shape(side: Side, channels: Channels) -> Shape:
    height, width = side if isinstance(side, tuple) else (side, side)
    if min(height, width) < 1:
        raise InputError(f"images cannot have {height} x {width} pixels: give a side of 1 or more")
    if channels not in get_args(Channels):
        raise InputError(f"there are no channels {channels!r}: use grey or rgb")
    return CHANNELS[channels], height, width


@dataclass(frozen=True)
class _Layout:
    """The files of a folder with their labels. Without test files, a part of the others becomes the test split."""

    classes: tuple[str, ...]
    train: tuple[tuple[Path, int], ...]
    test: tuple[tuple[Path, int], ...] = ()


def _layout(path: Path) -> _Layout:
    if not _has_splits(path):
        classes = _classes(path)
        files = _members(path, classes)
        if len(files) == len(classes):
            raise InputError(f"{path} has one image per class, so nothing is left to test on: add images")
        return _Layout(classes, files)
    classes = _classes(path / "train")
    strange = sorted(set(_classes(path / "test", fewest=1)) - set(classes))
    if strange:
        raise InputError(f"{path}/test has the class {strange[0]!r} that train has not: add it there or remove it")
    return _Layout(classes, *(_members(path / part, classes) for part in ("train", "test")))


def _has_splits(path: Path) -> bool:
    """Whether `path` contains the folders train and test."""
    if not path.is_dir():
        raise InputError(f"{path} is not a folder: pass one that holds a folder of images for each class")
    train, test = path / "train", path / "test"
    if train.is_dir() and not test.is_dir() and any(entry.is_dir() for entry in train.iterdir()):
        raise InputError(f"{path} has train but no test: add test, or put the class folders directly into {path}")
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
            raise InputError(f"{path} has the classes {other!r} and {name!r}: merge them or rename one")
    return tuple(classes)


def _members(path: Path, classes: tuple[str, ...]) -> tuple[tuple[Path, int], ...]:
    """The image files with their labels. The test split may lack a class folder, but no folder may be empty."""
    found: list[tuple[Path, int]] = []
    for label, name in enumerate(classes):
        files = image_files(path / name)
        if not files and (path / name).is_dir():
            raise InputError(f"{path / name} holds no images: add some or remove the folder")
        deep = next((file for file in files if file.parent != path / name), None)
        if deep is not None:
            inner = deep.relative_to(path / name).parts[0]
            raise InputError(
                f"{path / name} has the folder {inner!r} with images in it: put the images directly into the folders "
                f"of the classes, or pass the folder that holds these, such as {PREFIX}{path / name}"
            )
        found += [(file, label) for file in files]
    return tuple(found)


def _decode(files: tuple[tuple[Path, int], ...], shape: Shape) -> Split:
    labels = torch.tensor([label for _, label in files], dtype=torch.int64)
    return Split(decode_all([file for file, _ in files], shape), labels)


def _cached(path: Path, root: Path, shape: Shape | None, kind: str) -> Path:
    where = hashlib.sha256(f"{path.resolve()}\n{shape}".encode()).hexdigest()[:16]
    return root / f"folder-{where}.{kind}"


def _fingerprint(path: Path) -> str:
    """A digest of names, sizes and modification times, which needs no file to be opened."""
    digest = hashlib.sha256()
    for file in image_files(path):
        status = file.stat()
        digest.update(f"{file.relative_to(path)}\n{status.st_size}\n{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
