"""Parts of the data that a trained model is looked at with."""

import pytest
import torch

from lotnet.data import load, validation_split
from lotnet.errors import InputError
from lotnet.runs.data import split_subset

DIGITS = load("digits")


def among(images: torch.Tensor, others: torch.Tensor) -> float:
    """The share of `images` that are among the others."""
    known = {image.numpy().tobytes() for image in others}
    return sum(image.numpy().tobytes() in known for image in images) / len(images)


def test_a_part_of_the_training_images_has_its_share_of_those_held_out() -> None:
    _, held_out = validation_split(DIGITS.train)
    for limit in (100, 300, 600):
        part = split_subset(DIGITS, "train", limit)
        assert len(part) == limit
        assert among(part.images, DIGITS.train.images) == 1
        assert among(part.images, held_out.images) < 0.1  # 0.05 in the whole


@pytest.mark.parametrize("limit", [0, -3])
def test_a_part_has_images(limit: int) -> None:
    with pytest.raises(InputError, match="give 1 or more"):
        split_subset(DIGITS, "test", limit)


def test_without_a_limit_a_split_is_whole() -> None:
    for name in ("train", "test"):
        assert torch.equal(split_subset(DIGITS, name, None).labels, getattr(DIGITS, name).labels)
