"""Prepared data sets on disk: one safetensors file each, whose checksum is verified at every read.

Invariants:

* a file holds the tensors `train.images`, `train.labels`, `test.images` and `test.labels`. One metadata entry, in JSON,
  has the format version, the name, the class names, the origin of the data, and the SHA-256 of all these;
* a file is written under another name and then renamed, so a reader sees the old file, the new file or none;
* a file that differs in any bit from what was written is refused with an `InputError`.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lotnet.data.dataset import Dataset, Split
from lotnet.errors import InputError
from lotnet.files import replacing
from lotnet.records import convert, parse_json

VERSION = 1
_ENTRY = "lotnet.data"
_TENSORS = ("train.images", "train.labels", "test.images", "test.labels")


def root_folder(root: str | Path | None = None) -> Path:
    """The folder of prepared data sets: `root`, else the environment variable LOTNET_DATA, else ~/.cache/lotnet."""
    return Path(root or os.environ.get("LOTNET_DATA") or "~/.cache/lotnet").expanduser()


def write(dataset: Dataset, path: Path, origin: str) -> None:
    """Store a data set, with the origin that it was read from."""
    splits = (dataset.train, dataset.test)
    tensors = dict(zip(_TENSORS, (t for s in splits for t in (s.images, s.labels)), strict=True))
    tensors = {key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
    about = {"version": VERSION, "name": dataset.name, "classes": list(dataset.classes), "origin": origin}
    about["sha256"] = _digest(about, tensors)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            save_file(tensors, partial, metadata={_ENTRY: json.dumps(about)})
    except (OSError, SafetensorError, InputError) as error:
        raise InputError(
            f"cannot write {path} ({error}): free space there or choose another folder with LOTNET_DATA"
        ) from error


def read(path: Path) -> Dataset:
    """Read a stored data set. Raises an `InputError` if the file is damaged or has another format version."""
    try:
        with safe_open(path, framework="pt") as file:
            about = _header(file)
            if about["version"] == VERSION:
                tensors = {key: file.get_tensor(key) for key in _TENSORS}
                intact = about.pop("sha256") == _digest(about, tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _damaged(path) from error
    if about["version"] != VERSION:
        raise InputError(
            f"{path} has format {about['version']}, not {VERSION}: delete it and prepare the data set again"
        )
    if not intact:
        raise _damaged(path)
    train, test = (Split(tensors[f"{part}.images"], tensors[f"{part}.labels"]) for part in ("train", "test"))
    return Dataset(about["name"], train, test, tuple(about["classes"]))


def origin(path: Path) -> str | None:
    """The origin stored in a file; None if there is no readable file of this format version."""
    try:
        with safe_open(path, framework="pt") as file:
            about = _header(file)
        return about["origin"] if about["version"] == VERSION else None
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def _header(file: safe_open) -> dict[str, Any]:
    return convert(dict[str, Any], parse_json((file.metadata() or {})[_ENTRY]))


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} is damaged: delete it and prepare the data set again (`lotnet data prepare`)")


def _digest(about: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    shapes = {key: [str(tensor.dtype), *tensor.shape] for key, tensor in tensors.items()}
    digest = hashlib.sha256(json.dumps([about, shapes], sort_keys=True).encode())
    for key in _TENSORS:
        digest.update(tensors[key].numpy().data)
    return digest.hexdigest()
