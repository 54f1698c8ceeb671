"""Near-duplicates of test images are found exactly, also mirrored ones."""

import pytest
import torch

from lotnet.data import near_duplicates

CPU = torch.device("cpu")


def pictures(count: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def test_copies_changed_a_little_or_mirrored_are_found_and_others_are_not() -> None:
    test, images = pictures(20, 0), pictures(30, 1)
    images[3] = (test[5].int() + 9).clamp(0, 255).to(torch.uint8)
    images[8] = test[11].flip(2)
    images[9] = test[11].flip(1)  # upside down is another image
    assert near_duplicates(images, test, CPU).nonzero().flatten().tolist() == [3, 8]


@pytest.mark.gpu
def test_a_gpu_finds_the_same() -> None:
    test = pictures(20, 0)
    images = (test.repeat(3, 1, 1, 1).int() + torch.randint(-40, 41, (60, 3, 8, 8))).clamp(0, 255).to(torch.uint8)
    assert torch.equal(near_duplicates(images, test, torch.device("cuda")), near_duplicates(images, test, CPU))


def test_the_limit_is_exact() -> None:
    test = torch.full((1, 3, 8, 8), 100, dtype=torch.uint8)
    images = torch.full((2, 3, 8, 8), 112, dtype=torch.uint8)
    images[1, 0, 0, 0] = 113  # one level more in one place
    assert near_duplicates(images, test, CPU, levels=12).tolist() == [True, False]
    assert near_duplicates(images, test, CPU, levels=0).tolist() == [False, False]
