"""The images without labels: from folders, pickles and other prepared data sets, without copies of test images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lotnet.data import SOURCES, Dataset, load, near_duplicates, shrink, unlabeled
from lotnet.errors import InputError
from lotnet.runs.data import subset_indices


@dataclass(frozen=True, eq=False)
class UnlabeledImages:
    """Images without labels, of the shape of the data set's images."""

    images: Tensor  # n c h w, uint8
    near_duplicates: int
    """How many images were left out because they are nearly the same as a test image."""
    source: str
    """Where they come from, in words."""


def load_unlabeled(
    dataset: Dataset,
    source: str | None,
    limit: int | None = None,
    device: torch.device = torch.device("cpu"),  # noqa: B008 (immutable)
    root: str | None = None,
) -> UnlabeledImages | None:
    """Load the images of each part of `source`, which commas separate, less near-duplicates of test images.

    With a limit, a random subset of `limit` images is used. `root` is the folder of prepared data sets.
    """
    if source is None:
        return None
    parts = [part.strip() for part in source.split(",")]
    images = torch.cat([_load(dataset, part, root) for part in parts])
    if limit is not None:
        images = images[subset_indices(len(images), limit)]
    copies = near_duplicates(images, dataset.test.images, device)
    if bool(copies.all()):
        raise InputError(f"all images of {source} are near-duplicates of test images: use others")
    return UnlabeledImages(images[~copies], int(copies.sum()), f"images of {' and '.join(parts)}")


def _load(dataset: Dataset, source: str, root: str | None) -> Tensor:
    if source == dataset.name:
        raise InputError(f"{source} is the labeled data set: hide some of its labels with --labeled instead")
    if source in SOURCES:
        images = shrink(load(source, root).train.images, dataset.shape)
    else:
        images = unlabeled(source, dataset.shape)
    if tuple(images.shape[1:]) != dataset.shape:
        found, wanted = (" x ".join(map(str, shape)) for shape in (images.shape[1:], dataset.shape))
        raise InputError(
            f"the images of {source} are {found} and those of {dataset.name} {wanted}: hide labels with --labeled "
            "instead, or use a data set in colour"
        )
    return images
