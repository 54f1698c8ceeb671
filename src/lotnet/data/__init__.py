"""Data sets: `prepare` one once, `load` it by name, and iterate over it with `Batches` on the device.

To add a data set, write a module with a `Source` and add one line to `SOURCES`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePath

from lotnet.data import cache, cifar, digits, folder, tiny_imagenet
from lotnet.data.augment import AugmentationKind, choose_augmentation
from lotnet.data.batches import Batches, Shard, to_unit
from lotnet.data.dataset import Augmentation, Dataset, Split, validation_split
from lotnet.data.findings import findings, folder_findings
from lotnet.data.folder import Channels, Choice, Side
from lotnet.data.images import decode
from lotnet.data.layout import PREFIX
from lotnet.data.mixture import Mixture
from lotnet.data.near_duplicates import near_duplicates
from lotnet.data.source import Source
from lotnet.data.unit_images import UnitImages
from lotnet.data.unlabeled import hide_labels, pseudo_labeled, shrink, unlabeled
from lotnet.errors import InputError

__all__ = [
    "PREFIX",
    "SOURCES",
    "Augmentation",
    "AugmentationKind",
    "Batches",
    "Channels",
    "Choice",
    "Dataset",
    "Mixture",
    "Shard",
    "Side",
    "Source",
    "Split",
    "UnitImages",
    "choose_augmentation",
    "choose_shape",
    "decode",
    "findings",
    "folder_findings",
    "hide_labels",
    "is_folder",
    "is_prepared",
    "load",
    "near_duplicates",
    "prepare",
    "pseudo_labeled",
    "public_name",
    "shrink",
    "to_unit",
    "unlabeled",
    "validation_split",
    "without_path",
]

SOURCES: dict[str, Source] = {
    "digits": digits.SOURCE,
    "cifar10": cifar.SOURCE10,
    "cifar100": cifar.SOURCE100,
    "tiny-imagenet": tiny_imagenet.SOURCE,
}


def load(
    name: str, root: str | Path | None = None, side: Side | None = None, channels: Channels | None = None
) -> Dataset:
    """Load the data set `name`: a key of `SOURCES`, or `folder:PATH`.

    The images of a folder are decoded to `side` (or height and width) and `channels` (grey or rgb). By default they
    keep the pixels of the files where that is possible (`folder.choose_shape`). `root` is the folder of prepared data
    sets, by default $LOTNET_DATA, else ~/.cache/lotnet.
    """
    if is_folder(name):
        return folder.load(name, cache.root_folder(root), side, channels)
    source, path = _find(name), _path(name, root)
    if not is_prepared(name, root):
        raise InputError(f"{name} is not in {path.parent}: run {_command(name, source)}")
    dataset = cache.read(path) if source.origins else source.read("")
    dataset = replace(dataset, augmentation=source.augmentation, published_std=source.std)
    own_channels, *size = dataset.shape
    if side is not None and list(side if isinstance(side, tuple) else (side, side)) != size:
        raise InputError(f"{name} has side {size[-1]}, not {side}: leave the side out")
    if channels is not None and folder.CHANNELS.get(channels) != own_channels:
        raise InputError(f"{name} has {own_channels} channel(s), which are not {channels}: leave the channels out")
    return dataset


def is_folder(name: str) -> bool:
    """Whether `name` is `folder:PATH`."""
    return name.startswith(PREFIX)


def public_name(name: str) -> str:
    """The name of a data set for others to read. A path is cut to its last part, because paths are private.

    >>> public_name("folder:/home/me/clothes")
    'the folder clothes'
    """
    if not is_folder(name):
        return name
    return f"the folder {PurePath(name.removeprefix(PREFIX)).name or 'of images'}"  # folder:. has no name


def without_path(name: str) -> str:
    """The name of a data set in files to give away. A path is cut to its last part.

    >>> without_path("folder:/home/me/clothes"), without_path("cifar10")
    ('folder:clothes', 'cifar10')
    """
    return f"{PREFIX}{PurePath(name.removeprefix(PREFIX)).name or '.'}" if is_folder(name) else name


def choose_shape(
    name: str, root: str | Path | None = None, side: Side | None = None, channels: Channels | None = None
) -> Choice:
    """The shape to which `load` decodes the images of the folder `name`, and the reason in words."""
    return folder.choose_shape(name, cache.root_folder(root), side, channels)


def prepare(name: str, source: str | None = None, root: str | Path | None = None) -> Path:
    """Read the data set `name` from `source`, one of its `origins`, and store it. Returns the path of the file."""
    if is_folder(name):
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
        if Path(name).expanduser().is_dir():
            raise InputError(f"there is no data set {name!r}: for the images in that folder, write {PREFIX}{name}")
        raise InputError(f"there is no data set {name!r}: use {', '.join(SOURCES)} or {PREFIX}PATH")
    return SOURCES[name]


def _path(name: str, root: str | Path | None) -> Path:
    return cache.root_folder(root) / f"{name}.safetensors"


def _command(name: str, source: Source) -> str:
    first, *others = (f"--from {origin}" for origin in source.origins)
    return f"`lotnet data prepare {name} {first}`" + "".join(f", or {other}" for other in others)
