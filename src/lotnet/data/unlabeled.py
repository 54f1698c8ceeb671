"""Images without labels, or with hidden ones, for self-training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lotnet.data.dataset import Split, stratified
from lotnet.data.images import decode_all, image_files
from lotnet.data.unpickle import load_arrays
from lotnet.errors import InputError


def unlabeled(source: str | Path, shape: Sequence[int]) -> Tensor:
    """Load all images in a folder, or in a pickle such as the 500K of Carmon et al. Returns n c h w, uint8.

    Files are decoded to `shape` (c, h, w). The images of a pickle must have its height and width.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        files = image_files(path)
        if not files:
            raise InputError(f"{path} holds no images: add some or pass another folder")
        return decode_all(files, shape)
    images = pseudo_labeled(path).images
    if tuple(images.shape[2:]) != tuple(shape[1:]):
        found, wanted = (" x ".join(map(str, size)) for size in (images.shape[2:], shape[1:]))
        raise InputError(f"{path} has images of {found} pixels: train on that size, not on {wanted}")
    return images


def shrink(images: Tensor, shape: Sequence[int]) -> Tensor:
    """Reduce images (n c h w, uint8) to the height and width in `shape`, where these are whole parts of their own.

    Each pixel is the mean of a block, rounded to the nearest level. Images of other sizes are returned as they are.
    """
    (high, wide), (h, w) = images.shape[2:], shape[1:]
    if high % h or wide % w or (high, wide) == (h, w):
        return images
    size = (high // h) * (wide // w)
    reduced = []
    for part in images.split(5000):  # in integers, which need more memory than the images
        blocks = part.unflatten(3, (w, wide // w)).unflatten(2, (h, high // h)).int().sum(dim=(3, 5))
        reduced.append(((2 * blocks + size) // (2 * size)).to(torch.uint8))
    return torch.cat(reduced)


def pseudo_labeled(path: str | Path) -> Split:
    """Load the 500K images of Y. Carmon et al., "Unlabeled Data Improves Adversarial Robustness" (2019).

    Their pickle is a dict of `data`, n h w c uint8, and `extrapolated_targets`, the labels predicted by their model.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise InputError(f"{path} does not exist: pass a folder of images or ti_500K_pseudo_labeled.pickle")
    with path.open("rb") as file:
        content = load_arrays(file, path)
    try:
        pixels = content["data"]
        labels = np.array(content["extrapolated_targets"], np.int64)
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 4:
            raise ValueError("the images are no n x h x w x c array of uint8")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{path} is not a dict of 'data' and 'extrapolated_targets': get it again") from error
    return Split(torch.from_numpy(np.array(pixels.transpose(0, 3, 1, 2), order="C")), torch.from_numpy(labels))


def hide_labels(train: Split, labeled_fraction: float, seed: int = 0) -> tuple[Split, Tensor, Tensor]:
    """Hide the labels of all but a stratified fraction. Returns (labeled split, other images, their hidden labels).

    The hidden labels only measure the accuracy of pseudo-labels. Do not train on them.
    """
    shown = stratified(train.labels, labeled_fraction, seed)
    hidden = train.select(~shown)
    return train.select(shown), hidden.images, hidden.labels
