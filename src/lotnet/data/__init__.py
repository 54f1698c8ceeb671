"""Data sets: `prepare` one once, `load` it by name, and iterate over it with `Batches` on the device.

To add a data set, write a module with a `Source` and add one line to `SOURCES`.
"""

from __future__ import annotations

from pathlib import Path

from lotnet.data import cache, cifar, digits, folder, tiny_imagenet
from lotnet.data.batches import Batches, Shard, to_unit
from lotnet.data.dataset import Augmentation, Dataset, Split, validation_split
from lotnet.data.images import decode
from lotnet.data.source import Source
from lotnet.data.unlabeled import hide_labels, pseudo_labeled, unlabeled
from lotnet.errors import InputError

__all__ = [
    "SOURCES",
    "Augmentation",
    "Batches",
    "Dataset",
    "Shard",
    "Source",
    "Split",
    "decode",
    "hide_labels",
    "is_prepared",
    "load",
    "prepare",
    "pseudo_labeled",
    "to_unit",
    "unlabeled",
    "validation_split",
]

SOURCES: dict[str, Source] = {
    "digits": digits.SOURCE,
    "cifar10": cifar.SOURCE10,
    "cifar100": cifar.SOURCE100,
    "tiny-imagenet": tiny_imagenet.SOURCE,
}


def load(name: str, root: str | Path | None = None, side: int | None = None) -> Dataset:
    """Load the data set `name`: a key of `SOURCES`, or `folder:PATH`.

    The images of a folder are resized to `side` x `side`, 32 x 32 by default. `root` is the folder of prepared data
    sets, by default $LOTNET_DATA, else ~/.cache/lotnet.
    """
    if name.startswith(folder.PREFIX):
        return folder.load(name, cache.root_folder(root), folder.SIDE if side is None else side)
    source, path = _find(name), _path(name, root)
    if not is_prepared(name, root):
        raise InputError(f"{name} is not in {path.parent}: run {_command(name, source)}")
    dataset = cache.read(path) if source.origins else source.read("")
    if side not in (None, dataset.shape[-1]):
        raise InputError(f"{name} has side {dataset.shape[-1]}, not {side}: leave the side out")
    return dataset


def prepare(name: str, source: str | None = None, root: str | Path | None = None) -> Path:
    """Read the data set `name` from `source`, one of its `origins`, and store it. Returns the path of the file."""
    if name.startswith(folder.PREFIX):
        raise InputError(f"{name} needs no preparing: pass that name wherever a data set is asked for")
    known, path = _find(name), _path(name, root)
    if not known.origins:
        raise InputError(f"{name} is part of lotnet and needs no preparing: use it by its name")
    if source is None:
        raise InputError(f"say where {name} comes from: {_command(name, known)}")
    cache.write(known.read(source), path, origin=source)
    return path


def is_prepared(name: str, root: str | Path | None = None) -> bool:
    """Whether `load(name, root)` finds the data set."""
    return not _find(name).origins or _path(name, root).is_file()


def _find(name: str) -> Source:
    if name not in SOURCES:
        raise InputError(f"there is no data set {name!r}: use {', '.join(SOURCES)} or {folder.PREFIX}PATH")
    return SOURCES[name]


def _path(name: str, root: str | Path | None) -> Path:
    return cache.root_folder(root) / f"{name}.safetensors"


def _command(name: str, source: Source) -> str:
    first, *others = (f"--from {origin}" for origin in source.origins)
    return f"`lotnet data prepare {name} {first}`" + "".join(f", or {other}" for other in others)
