"""RandAugment: every operation against Pillow, and every image independent of its batch."""

from collections.abc import Callable

import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from lotnet.data import Augmentation, Batches, Shard, Split
from lotnet.data.randaugment import OPERATIONS, apply_operations, rand_augment

SAMPLES = torch.arange(400)


def pictures(channels: int = 3, height: int = 32, width: int = 32, count: int = 12) -> Tensor:
    """Smooth pictures with noise, a constant one, one of two levels, and one that misses the ends of the scale."""
    generator = torch.Generator().manual_seed(height)
    coarse = torch.rand(count, channels, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    images = (255 * (0.8 * smooth + 0.2 * torch.rand(smooth.shape, generator=generator))).to(torch.uint8)
    images[0] = 77
    images[1] = 255 * (images[1] > 128)
    images[2] = images[2] // 3 + 40
    return images


def affine(*matrix: float) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


def by_pillow(name: str, sign: int, width: int, height: int) -> Callable[[Image.Image], Image.Image]:
    """What torchvision's RandAugment calls for a picture of Pillow, at magnitude 9 of 0 to 30."""
    moves = {
        "identity": lambda image: image,
        "shear x": affine(1, sign * 0.09, 0, 0, 1, 0),
        "shear y": affine(1, 0, 0, sign * 0.09, 1, 0),
        "translate x": affine(1, 0, sign * int(0.3 * 150 / 331 * width), 0, 1, 0),
        "translate y": affine(1, 0, 0, 0, 1, sign * int(0.3 * 150 / 331 * height)),
        "rotate": lambda image: image.rotate(9 * sign, Image.Resampling.NEAREST),
        "posterize": lambda image: ImageOps.posterize(image, 7),
        "solarize": lambda image: ImageOps.solarize(image, 178.5),
        "auto contrast": ImageOps.autocontrast,
        "equalize": ImageOps.equalize,
    }
    mixes = {
        "brightness": ImageEnhance.Brightness,
        "color": ImageEnhance.Color,
        "contrast": ImageEnhance.Contrast,
        "sharpness": ImageEnhance.Sharpness,
    }
    return moves[name] if name in moves else lambda image: mixes[name](image).enhance(1 + sign * 0.27)


def to_pillow(image: Tensor) -> Image.Image:
    channels, height, width = image.shape
    mode = {1: "L", 3: "RGB"}[channels]
    return Image.frombytes(mode, (width, height), bytes(image.permute(1, 2, 0).flatten().tolist()))


def from_pillow(image: Image.Image) -> Tensor:
    levels = torch.tensor(list(image.tobytes()), dtype=torch.uint8)
    return levels.view(image.height, image.width, -1).permute(2, 0, 1)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 40, 23), (1, 2, 5)], ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_returns_what_pillow_returns(name: str, shape: tuple[int, int, int]) -> None:
    images = pictures(*shape)
    operation = torch.full((len(images),), OPERATIONS.index(name))
    for sign in (-1, 1):
        found = apply_operations(images, operation, torch.full_like(operation, sign))
        pillow = by_pillow(name, sign, shape[2], shape[1])
        expected = torch.stack([from_pillow(pillow(to_pillow(image))) for image in images])
        assert torch.equal(found, expected)
        if shape == (3, 32, 32):
            assert torch.equal(found, images) == (name == "identity")


def test_operations_in_one_batch_do_not_mix() -> None:
    images = pictures(count=28)
    operation = torch.arange(28) % len(OPERATIONS)
    sign = 1 - 2 * (torch.arange(28) // len(OPERATIONS))
    whole = apply_operations(images, operation, sign)
    alone = [apply_operations(images[n : n + 1], operation[n : n + 1], sign[n : n + 1]) for n in range(28)]
    assert torch.equal(whole, torch.cat(alone))


def test_half_of_the_images_change_by_two_random_operations() -> None:
    """Each operation alone occurs too, where the other one is the identity."""
    count = 5000
    images = pictures(height=16, width=16)[5:6].expand(count, -1, -1, -1)
    found = rand_augment(images, torch.arange(count), 1, 2)
    assert found.dtype == torch.uint8 and found.shape == images.shape
    same = (found == images).flatten(1).all(dim=1).float().mean()
    assert 0.47 < same < 0.53  # both operations are the identity in a quarter of a percent
    outcomes = {bytes(image.flatten().tolist()) for image in found}
    variants = [(k, s) for k in range(len(OPERATIONS)) for s in (-1, 1)]
    alone = apply_operations(images[:28], *(torch.tensor(column) for column in zip(*variants, strict=True)))
    singles = {bytes(image.flatten().tolist()) for image in alone}
    assert len(singles) == 23 and singles <= outcomes
    assert 300 < len(outcomes) <= 23**2


def test_an_image_depends_only_on_its_sample_and_the_key() -> None:
    images = pictures(count=400)
    whole = rand_augment(images, SAMPLES, 5, 0)
    some = torch.tensor([3, 77, 12, 399])
    assert torch.equal(rand_augment(images[some], some, 5, 0), whole[some])
    assert not torch.equal(rand_augment(images, SAMPLES, 5, 1), whole)
    assert rand_augment(images[:0], SAMPLES[:0], 5).shape == (0, 3, 32, 32)


def test_batches_are_the_same_for_any_split_and_any_number_of_processes() -> None:
    split = Split(pictures(count=60), torch.arange(60))
    options = {"seed": 3, "augmentation": Augmentation(padding=2, randaugment=True)}

    def by_sample(size: int, processes: int = 1) -> Tensor:
        shards = [Batches(split, size, shard=Shard(rank, processes), **options) for rank in range(processes)]
        pairs = [pair for batches in shards for pair in batches.epoch(1)]
        labels = torch.cat([labels for _, labels in pairs])
        return torch.cat([images for images, _ in pairs])[labels.argsort()]

    whole = by_sample(60)
    assert torch.equal(by_sample(8), whole) and torch.equal(by_sample(12, processes=3), whole)
    plain = next(Batches(split, 60, seed=3, augmentation=Augmentation(padding=2)).epoch(1))
    assert 0.3 < (whole == plain[0][plain[1].argsort()]).flatten(1).all(dim=1).float().mean() < 0.8


@pytest.mark.gpu
def test_same_on_cuda() -> None:
    images = pictures(count=400)
    assert torch.equal(rand_augment(images.cuda(), SAMPLES.cuda(), 5).cpu(), rand_augment(images, SAMPLES, 5))
