"""What a user should know about a data set before its accuracies are believed, in sentences."""

import hashlib
from collections.abc import Iterator

import torch

from lotnet.data.dataset import Dataset, Split
from lotnet.data.images import about_skipped
from lotnet.data.layout import PREFIX, folder_path, read_layout, unused_folders
from lotnet.spelling import counted

FEW = 20
"""A class with fewer training images than this is reported."""
DARK = 31
"""Images without a level above this use less than an eighth of the range."""
_NAMED = 5
"""Most classes that one sentence names."""


def findings(dataset: Dataset) -> list[str]:
    """Classes with few training images or no test images, levels that are all small, and images in both splits."""
    train, test = (
        torch.bincount(split.labels, minlength=len(dataset.classes)).tolist() for split in (dataset.train, dataset.test)
    )
    few = [f"{name} ({n})" for name, n in zip(dataset.classes, train, strict=True) if n < FEW]
    missing = [name for name, n in zip(dataset.classes, test, strict=True) if not n]
    found = []
    if few:
        limited = _with_limit(dataset, dataset.train)
        found.append(f"{limited}{_classes(len(few))} fewer than {FEW} training images: {_listed(few)}")
    if missing:
        limited = _with_limit(dataset, dataset.test)
        found.append(f"{limited}{_classes(len(missing))} no test images: {_listed(missing)}")
    if dataset.largest_level <= DARK:
        found.append(
            f"no level of the training images is above {dataset.largest_level} of 255: if their files hold fewer bits "
            "than the format has room for, such as 12 bits in 16, most levels are lost, so rescale them to the whole "
            "range first"
        )
    both = duplicates(dataset)
    if both:
        share = both / len(dataset.test)
        found.append(
            f"{both:,} of {len(dataset.test):,} test images ({share:.1%}) are also training images, pixel by pixel: "
            "accuracies are too high"
        )
    return found


def folder_findings(name: str) -> list[str]:
    """What `folder:PATH` does not read: folders with images, such as PATH/val, and files that are no images.

    Other data sets have no such findings.
    """
    if not name.startswith(PREFIX):
        return []
    path = folder_path(name)
    unused, skipped = unused_folders(path), read_layout(path).skipped
    found = [about_skipped(skipped)] if skipped else []
    if unused:
        folders = f"folder {unused[0]}" if len(unused) == 1 else f"folders {_listed(unused)}"
        verb = "is" if len(unused) == 1 else "are"
        found.append(f"the {folders} beside train and test {verb} not part of the data set")
    return found


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


def _with_limit(dataset: Dataset, split: Split) -> str:
    """The beginning of a sentence about a split that a limit made small."""
    return f"with a limit of {counted(len(split), 'image')}, " if len(split) == dataset.limit else ""


def _classes(count: int) -> str:
    return "1 class has" if count == 1 else f"{count} classes have"


def _listed(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
