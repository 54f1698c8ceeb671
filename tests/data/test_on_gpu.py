"""A GPU makes the same random numbers and batches as a CPU. Needs no package that a GPU machine may lack."""

import pytest
import torch
from toy_data import random_split

from lotnet.data import Augmentation, Batches, Mixture, Split
from lotnet.data.counter_rng import bits, permutation

pytestmark = pytest.mark.gpu
IMAGES = random_split(50, 5, (3, 8, 8))


def assert_same_batches(split: Split, **settings: object) -> None:
    here, there = (list(Batches(split, 16, seed=1, device=d, **settings).epoch(2)) for d in ("cpu", "cuda"))
    assert len(here) == len(there) > 1
    for one, other in zip(here, there, strict=True):
        assert all(torch.equal(tensor, on_gpu.cpu()) for tensor, on_gpu in zip(one, other, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_augmented_batches(dtype: torch.dtype) -> None:
    assert_same_batches(IMAGES, augmentation=Augmentation(padding=4, flip=True), dtype=dtype)


def test_batches_with_a_share_of_labeled_images() -> None:
    assert_same_batches(Split(IMAGES.images, torch.arange(50), Mixture(20, 0.5)), drop_last=True)


def test_random_numbers() -> None:
    index = torch.arange(100_000)
    assert torch.equal(bits(index, 5, 6).cuda(), bits(index.cuda(), 5, 6))
    assert torch.equal(permutation(100_000, 5), permutation(100_000, 5, device="cuda").cpu())
