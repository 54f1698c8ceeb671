"""Prepared data sets on disk: one safetensors file each, whose checksum is verified at every read.

Invariants:

* a file holds the tensors `train.images`, `train.labels`, `test.images` and `test.labels`. One metadata entry, in JSON,
  has the format version, the name, the class names, the origin of the data, and the SHA-256 of all these;
* a file is written under another name and then renamed, so a reader sees the old file, the new file or none;
* a file that differs in any bit from what was written is refused with an `InputError`;
* images pass through memory a part at a time, in writing and, if they stay in the file, in reading.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lotnet.data.dataset import Dataset, Split
from lotnet.data.stored import StoredImages
from lotnet.errors import InputError
from lotnet.files import replacing, unreadable
from lotnet.records import convert, parse_json

VERSION = 1
_ENTRY = "lotnet.data"
_PARTS = ("train", "test")
_TENSORS = tuple(f"{part}.{kind}" for part in _PARTS for kind in ("images", "labels"))
_DTYPES = {"U8": "torch.uint8", "I64": "torch.int64"}
"""How safetensors and PyTorch call the types of images and labels."""


def root_folder(root: str | Path | None = None) -> Path:
    """The folder of prepared data sets: `root`, else the environment variable LOTNET_DATA, else ~/.cache/lotnet."""
    return Path(root or os.environ.get("LOTNET_DATA") or "~/.cache/lotnet").expanduser()


@dataclass(frozen=True)
class Part:
    """A split that is written a part at a time."""

    labels: Tensor
    shape: tuple[int, int, int]
    images: Iterable[Tensor]
    """Tensors (n, c, h, w) that together hold one image for each label, in that order."""


def write(dataset: Dataset, path: Path, origin: str) -> None:
    """Store a data set, with the origin that it was read from."""
    train, test = (Part(split.labels, split.shape, split.chunks()) for split in (dataset.train, dataset.test))
    write_parts(dataset.name, dataset.classes, train, test, path, origin)


def write_parts(name: str, classes: tuple[str, ...], train: Part, test: Part, path: Path, origin: str) -> None:
    """Store a data set whose images come a part at a time."""
    about: dict[str, Any] = {"version": VERSION, "name": name, "classes": list(classes), "origin": origin}
    shapes: dict[str, list[Any]] = {}
    for title, part in zip(_PARTS, (train, test), strict=True):
        shapes[f"{title}.images"] = ["U8", len(part.labels), *part.shape]
        shapes[f"{title}.labels"] = ["I64", len(part.labels)]
    digest = _digest_of_header(about, shapes)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial, partial.open("wb") as file:
            file.write(_header(about | {"sha256": digest.hexdigest()}, shapes))  # replaced below by one of equal length
            for part in (train, test):
                for images in part.images:
                    content = images.contiguous().numpy().data
                    digest.update(content)
                    file.write(content)
                labels = part.labels.numpy().astype("<i8").data
                digest.update(labels)
                file.write(labels)
            file.seek(0)
            file.write(_header(about | {"sha256": digest.hexdigest()}, shapes))
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"cannot write {path} ({error}): free space there or choose another folder with LOTNET_DATA"
        ) from error


def read(path: Path, in_file: bool = False) -> Dataset:
    """Read a stored data set. With `in_file`, images stay in the file.

    Raises an `InputError` if the file cannot be read, is damaged or has another format version.
    """
    try:
        with safe_open(path, framework="pt") as file:  # checks that the tensors fill the file
            about = _about(file)
        if about["version"] == VERSION:
            shapes, offsets = _places(path)
            train, test = (_split(path, shapes, offsets, part) for part in _PARTS)
            intact = about.pop("sha256") == _digest(about, shapes, train, test)
    except OSError as error:
        raise unreadable(path, error) from error
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError, InputError) as error:
        raise _damaged(path) from error
    if about["version"] != VERSION:
        raise InputError(
            f"{path} has format {about['version']}, not {VERSION}: delete it and prepare the data set again"
        )
    if not intact:
        raise _damaged(path)
    if not in_file:
        train, test = (Split(split.images, split.labels) for split in (train, test))
    return Dataset(about["name"], train, test, tuple(about["classes"]))


def origin(path: Path) -> str | None:
    """The origin stored in a file; None if there is no readable file of this format version."""
    try:
        with safe_open(path, framework="pt") as file:
            about = _about(file)
        return about["origin"] if about["version"] == VERSION else None
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def _about(file: safe_open) -> dict[str, Any]:
    return convert(dict[str, Any], parse_json((file.metadata() or {})[_ENTRY]))


def _header(about: dict[str, Any], shapes: dict[str, list[Any]]) -> bytes:
    """The head of a safetensors file: its length, then JSON. The tensors follow in the order of `shapes`."""
    content: dict[str, Any] = {"__metadata__": {_ENTRY: json.dumps(about)}}
    start = 0
    for name, (kind, *shape) in shapes.items():
        end = start + prod(shape) * (8 if kind == "I64" else 1)
        content[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _places(path: Path) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """Kind and shape of each tensor, and the byte where it begins. `safe_open` has checked the header."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        content = parse_json(file.read(length))
    shapes = {name: [content[name]["dtype"], *content[name]["shape"]] for name in _TENSORS}
    return shapes, {name: 8 + length + content[name]["data_offsets"][0] for name in _TENSORS}


def _split(path: Path, shapes: dict[str, list[Any]], offsets: dict[str, int], part: str) -> Split:
    kind, count, c, h, w = shapes[f"{part}.images"]
    if kind != "U8" or shapes[f"{part}.labels"] != ["I64", count]:
        raise ValueError(f"{part} has no images with labels")
    labels = np.fromfile(path, "<i8", count, offset=offsets[f"{part}.labels"]).astype(np.int64)
    return Split(StoredImages(path, offsets[f"{part}.images"], count, (c, h, w)), torch.from_numpy(labels))


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} is damaged: delete it and prepare the data set again (`lotnet data prepare`)")


def _digest_of_header(about: dict[str, Any], shapes: dict[str, list[Any]]) -> Any:
    """The beginning of the SHA-256: all but the tensors."""
    named = {name: [_DTYPES[kind], *shape] for name, (kind, *shape) in shapes.items()}
    return hashlib.sha256(json.dumps([about, named], sort_keys=True).encode())


def _digest(about: dict[str, Any], shapes: dict[str, list[Any]], *splits: Split) -> str:
    digest = _digest_of_header(about, shapes)
    for content in _contents(splits):
        digest.update(content)
    return digest.hexdigest()


def _contents(splits: Iterable[Split]) -> Iterator[memoryview]:
    for split in splits:
        for images in split.chunks():
            yield images.numpy().data
        yield split.labels.numpy().astype("<i8").data
