"""Tiny ImageNet: 200 classes, 64 x 64 (Stanford CS231n, http://cs231n.stanford.edu/tiny-imagenet-200.zip).

The labels of its test images are not published, so its validation images are the test split here. Class names are
sorted WordNet ids: those in `wnids.txt`, or the folder names if there is no such file. Grey images become RGB.
"""

from __future__ import annotations

from pathlib import Path

import torch

from lotnet.data.dataset import Dataset, Split
from lotnet.data.images import decode_all, image_files
from lotnet.data.source import Source
from lotnet.errors import InputError
from lotnet.records import read_text

SIDE = 64


def read(origin: str) -> Dataset:
    """Read the data set from the unpacked folder, or from the folder that contains it."""
    path = Path(origin).expanduser()
    inner = path / "tiny-imagenet-200"
    path = inner if inner.is_dir() else path
    annotations = path / "val" / "val_annotations.txt"
    if not (path / "train").is_dir() or not annotations.is_file():
        raise InputError(f"{path} lacks train or val/val_annotations.txt: pass what tiny-imagenet-200.zip unpacks to")
    listed, remedy = path / "wnids.txt", "unpack it again"
    folders = {entry.name for entry in (path / "train").iterdir() if entry.is_dir()}
    classes = sorted(set(read_text(listed, remedy).split()) if listed.is_file() else folders)
    unknown = sorted(set(classes) - folders)
    if unknown:
        raise InputError(f"{listed} has the class {unknown[0][:40]!r} that has no folder in {path / 'train'}: {remedy}")
    number = {wnid: label for label, wnid in enumerate(classes)}

    train = [(file, label) for wnid, label in number.items() for file in image_files(path / "train" / wnid / "images")]
    test = []
    for line in read_text(annotations, remedy).splitlines():
        fields = line.split("\t")  # file name, WordNet id, bounding box
        if len(fields) < 2 or fields[1] not in number or Path(fields[0]).name != fields[0]:
            raise InputError(f"{annotations} has the line {line[:80]!r}, which names no known class: {remedy}")
        test.append((path / "val" / "images" / fields[0], number[fields[1]]))
    return Dataset("tiny-imagenet", _split(train), _split(test), tuple(classes))


def _split(pairs: list[tuple[Path, int]]) -> Split:
    files = [file for file, _ in pairs]
    return Split(decode_all(files, (3, SIDE, SIDE)), torch.tensor([label for _, label in pairs], dtype=torch.int64))


SOURCE = Source(
    about="110 000 colour images, 64 x 64, 200 classes",
    read=read,
    origins=("DIR",),
)
