"""What a user should know about a data set before its accuracies are believed, in sentences."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import torch

from lotnet.data.dataset import Dataset, Split
from lotnet.data.layout import PREFIX, unused_folders

FEW = 20
"""A class with fewer training images than this is reported."""
_NAMED = 5
"""Most classes that one sentence names."""


def findings(dataset: Dataset) -> list[str]:
    """Classes with few training images, classes without test images, and images that are in both splits."""
    train, test = (
        torch.bincount(split.labels, minlength=len(dataset.classes)).tolist() for split in (dataset.train, dataset.test)
    )
    few = [f"{name} ({n})" for name, n in zip(dataset.classes, train, strict=True) if n < FEW]
    missing = [name for name, n in zip(dataset.classes, test, strict=True) if not n]
    found = []
    if few:
        found.append(f"{_classes(len(few))} fewer than {FEW} training images: {_listed(few)}")
    if missing:
        found.append(f"{_classes(len(missing))} no test images: {_listed(missing)}")
    both = duplicates(dataset)
    if both:
        share = both / len(dataset.test)
        found.append(
            f"{both:,} of {len(dataset.test):,} test images ({share:.1%}) are also training images, pixel by pixel: "
            "accuracies are too high"
        )
    return found


def folder_findings(name: str) -> list[str]:
    """Folders with images that `folder:PATH` does not read, such as PATH/val. Other data sets have none."""
    unused = unused_folders(Path(name.removeprefix(PREFIX)).expanduser()) if name.startswith(PREFIX) else []
    if not unused:
        return []
    folders = f"folder {unused[0]}" if len(unused) == 1 else f"folders {_listed(unused)}"
    return [f"the {folders} beside train and test {'is' if len(unused) == 1 else 'are'} not part of the data set"]


def duplicates(dataset: Dataset) -> int:
    """Number of test images that are equal to a training image in all pixels, whatever their labels."""
    test = list(_digests(dataset.test))
    wanted = set(test)
    known = {digest for digest in _digests(dataset.train) if digest in wanted}
    return sum(digest in known for digest in test)


def _digests(split: Split) -> Iterator[bytes]:
    for images in split.chunks():
        for image in images.flatten(1).contiguous().numpy():
            yield hashlib.blake2b(image.data, digest_size=16).digest()


def _classes(count: int) -> str:
    return "1 class has" if count == 1 else f"{count} classes have"


def _listed(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
