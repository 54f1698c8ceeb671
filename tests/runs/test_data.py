"""Parts of the data for the analysis of a trained model."""

import pytest
import torch

from lotnet.data import load, validation_split
from lotnet.errors import InputError
from lotnet.runs.data import split_subset

DIGITS = load("digits")


def among(images: torch.Tensor, others: torch.Tensor) -> float:
    """The share of `images` that are also in `others`."""
    known = {image.numpy().tobytes() for image in others}
    return sum(image.numpy().tobytes() in known for image in images) / len(images)


def test_a_part_of_the_training_images_holds_few_held_out_ones() -> None:
    _, held_out = validation_split(DIGITS.train)
    for limit in (100, 300, 600):
        part = split_subset(DIGITS, "train", limit)
        assert len(part) == limit
        assert among(part.images, DIGITS.train.images) == 1
        assert among(part.images, held_out.images) < 0.1  # 0.05 in the full training set


@pytest.mark.parametrize("limit", [0, -3])
def test_a_part_cannot_be_empty(limit: int) -> None:
    with pytest.raises(InputError, match="give 1 or more"):
        split_subset(DIGITS, "test", limit)


def test_without_a_limit_a_split_is_whole() -> None:
    for name in ("train", "test"):
        assert torch.equal(split_subset(DIGITS, name, None).labels, getattr(DIGITS, name).labels)
