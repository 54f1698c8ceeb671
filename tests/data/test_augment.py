"""Random changes of shape and colour in training images, determined by a key."""

from typing import get_args

import pytest
import torch

from lotnet.data import Augmentation, Batches, Split
from lotnet.data.augment import KINDS, AugmentationKind, choose_augmentation, describe, distort
from lotnet.data.batches import to_unit

SAMPLES = torch.arange(200)


def pictures(channels: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(200, channels, 16, 16, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_every_second_image_changes_and_pixels_stay_pixels(channels: int, dtype: torch.dtype) -> None:
    images = pictures(channels, dtype)
    found = distort(images, SAMPLES, 1, 2)
    same = (found == images).flatten(1).all(dim=1)
    assert found.dtype == dtype and found.shape == images.shape
    assert 70 <= same.sum() <= 130
    assert found.min() >= 0 and found.max() <= 1  # so none is NaN
    assert not ((found - images).abs().amax(dim=(1, 2, 3))[~same] < 1e-3).any()


def test_augmentation_depends_only_on_the_sample_and_the_key() -> None:
    images = pictures()
    whole = distort(images, SAMPLES, 5, 0)
    assert torch.equal(whole, distort(images, SAMPLES, 5, 0))
    some = torch.tensor([3, 77, 12])
    assert torch.allclose(distort(images[some], some, 5, 0), whole[some], atol=1e-5)
    assert not torch.equal(whole, distort(images, SAMPLES, 5, 1))


def test_changes_are_centred_and_moderate() -> None:
    """A square in the middle stays there: its centre moves by less than half a pixel. Its total brightness changes by
    no more than zoom (2^0.3 of the area), brightness (30 %) and contrast allow."""
    images = torch.zeros(200, 1, 15, 15)
    images[:, :, 5:10, 5:10] = 0.5
    found = distort(images, SAMPLES, 7)[:, 0]
    mass, place = found.sum(dim=(1, 2)), torch.arange(15.0)
    for dim in (1, 2):
        middle = (found.sum(dim=3 - dim) * place).sum(dim=1) / mass
        assert (middle - 7).abs().max() < 0.5
    assert (mass / images[0].sum()).log2().abs().max() < 1.2


def test_an_empty_batch_stays_empty() -> None:
    assert distort(torch.zeros(0, 3, 8, 8), torch.arange(0), 1).shape == (0, 3, 8, 8)


def test_a_grey_picture_has_no_colour_afterwards() -> None:
    images = pictures(1).expand(-1, 3, -1, -1)
    found = distort(images, SAMPLES, 3)
    assert torch.allclose(found, found[:, :1].expand_as(found), atol=1e-6)


def test_kinds_and_what_replaces_a_part_of_them() -> None:
    usual = Augmentation(padding=2, flip=True)
    assert set(KINDS) == set(get_args(AugmentationKind))
    assert choose_augmentation(usual, "none") == Augmentation(0, flip=False)
    assert choose_augmentation(usual, "standard") == usual
    assert choose_augmentation(usual, "strong") == Augmentation(2, flip=True, distort=True)
    assert choose_augmentation(usual, "standard", flip=False, crop=5) == Augmentation(5, flip=False)
    assert choose_augmentation(usual, "none", flip=True) == Augmentation(0, flip=True)
    assert describe(choose_augmentation(usual, "none")) == "none"
    assert describe(usual) == "mirroring, shifts by up to 2 pixels"


def test_batches_distort_when_asked_and_only_in_training() -> None:
    generator = torch.Generator().manual_seed(0)
    split = Split(torch.randint(0, 256, (64, 3, 8, 8), generator=generator, dtype=torch.uint8), torch.arange(64))
    augmentations = [Augmentation(padding=0, flip=False, distort=on) for on in (False, True)]
    plain, distort = (next(Batches(split, 64, seed=0, augmentation=a).epoch(3)) for a in augmentations)
    assert torch.equal(plain[1], distort[1])
    same = (plain[0] == distort[0]).flatten(1).all(dim=1)
    assert 16 <= same.sum() <= 48
    images, labels = next(Batches(split, 64).epoch(3))
    assert torch.equal(images, to_unit(split.images)) and torch.equal(labels, split.labels)
