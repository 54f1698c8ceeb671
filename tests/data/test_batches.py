"""Batches: the same for any number of processes and from any step; every image is a crop of its padded original."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_data import random_split

from lotnet.data import Augmentation, Batches, Shard, Split, cache, to_unit
from lotnet.data.batches import RESIDENT, crop
from lotnet.errors import InputError

AUGMENTATION = Augmentation(padding=4, flip=True)
SMALL = random_split(50, 5, (3, 8, 8))


def numbered(n: int) -> Split:
    """Split whose labels are the sample numbers, to see which samples a batch holds."""
    return Split(random_split(n, 2, (3, 8, 8)).images, torch.arange(n))


def joined(batches, epoch=0, start_step=0):
    pairs = list(batches.epoch(epoch, start_step))
    return torch.cat([images for images, _ in pairs]), torch.cat([labels for _, labels in pairs])


def test_shapes_types_and_length():
    batches = Batches(SMALL, 16)
    sizes = [(tuple(images.shape), len(labels)) for images, labels in batches.epoch(0)]
    assert sizes == [((16, 3, 8, 8), 16)] * 3 + [((2, 3, 8, 8), 2)]
    assert len(batches) == 4
    assert len(Batches(SMALL, 16, drop_last=True)) == len(list(Batches(SMALL, 16, drop_last=True).epoch(0))) == 3
    assert len(Batches(SMALL, 10)) == len(Batches(SMALL, 10, drop_last=True)) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_pixels_are_in_the_unit_interval(dtype):
    images, _ = joined(Batches(SMALL, 16, seed=0, augmentation=AUGMENTATION, dtype=dtype))
    assert images.dtype == dtype
    assert images.min() == 0
    assert images.max() == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_to_unit_is_level_over_255_rounded_once(dtype):
    levels = torch.arange(256, dtype=torch.uint8)
    exact = torch.tensor([level / 255 for level in range(256)], dtype=torch.float64)
    assert torch.equal(to_unit(levels, dtype), exact.to(dtype))


def test_every_sample_once_per_epoch_in_a_new_order():
    batches = Batches(numbered(50), 16, seed=0)
    first, second = joined(batches, 0)[1], joined(batches, 1)[1]
    assert first.sort().values.tolist() == second.sort().values.tolist() == list(range(50))
    assert not torch.equal(first, second)
    assert not torch.equal(first, torch.arange(50))


def test_evaluation_batches_keep_order_and_pixels():
    images, labels = joined(Batches(SMALL, 16), epoch=3)
    assert torch.equal(images, to_unit(SMALL.images))
    assert torch.equal(labels, SMALL.labels)


def test_batches_depend_only_on_seed_and_epoch():
    def draw(seed, epoch):
        return joined(Batches(SMALL, 16, seed=seed, augmentation=AUGMENTATION), epoch)[0]

    assert torch.equal(draw(3, 2), draw(3, 2))
    assert not torch.equal(draw(3, 2), draw(4, 2))
    assert not torch.equal(draw(3, 2), draw(3, 3))


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("drop_last", [True, False])
def test_shards_joined_by_rank_are_the_global_batch(world_size, drop_last):
    options = {"seed": 1, "augmentation": Augmentation(padding=2), "drop_last": drop_last}
    alone = Batches(SMALL, 12, **options)
    ranks = [Batches(SMALL, 12, shard=Shard(r, world_size), **options) for r in range(world_size)]
    assert {len(batches) for batches in ranks} == {len(alone)}
    for whole, *shards in zip(alone.epoch(5), *(batches.epoch(5) for batches in ranks), strict=True):
        for part in range(2):
            assert torch.equal(torch.cat([shard[part] for shard in shards]), whole[part])
        sizes = [len(labels) for _, labels in shards]
        assert max(sizes) - min(sizes) <= (0 if drop_last else 1)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 4), st.integers(0, 3), st.integers(0, 2**63 - 1))
def test_resuming_within_an_epoch(start, epoch, seed):
    batches = Batches(SMALL, 12, seed=seed, augmentation=AUGMENTATION)
    whole = list(batches.epoch(epoch))[start:]
    resumed = list(Batches(SMALL, 12, seed=seed, augmentation=AUGMENTATION).epoch(epoch, start_step=start))
    assert len(whole) == len(resumed)
    for one, other in zip(whole, resumed, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_augmentation_of_a_sample_does_not_depend_on_the_batch_size():
    def by_sample(batch_size):
        images, labels = joined(Batches(numbered(50), batch_size, seed=2, augmentation=AUGMENTATION), 1)
        return images[labels.argsort()]

    assert torch.equal(by_sample(50), by_sample(7))


def test_every_image_is_a_crop_of_its_padded_original_mirrored_or_not():
    padding, split = 2, numbered(200)
    seen = set()
    for images, labels in Batches(split, 64, seed=1, augmentation=Augmentation(padding)).epoch(0):
        for image, label in zip(images, labels.tolist(), strict=True):
            padded = F.pad(to_unit(split.images[label]), (padding,) * 4)
            matches = {
                (row, column, mirrored)
                for row in range(2 * padding + 1)
                for column in range(2 * padding + 1)
                for mirrored in (False, True)
                if torch.equal(
                    padded[:, row : row + 8, column : column + 8],
                    image.flip(-1) if mirrored else image,
                )
            }
            assert len(matches) == 1
            seen |= matches
    assert len(seen) > 45  # of 50 equally likely; 200 draws miss one with probability 0.018


def test_padding_and_flip_alone():
    split = numbered(50)
    images, labels = joined(Batches(split, 50, seed=0, augmentation=Augmentation(0, flip=False)))
    assert torch.equal(images, to_unit(split.images[labels]))
    images, labels = joined(Batches(split, 50, seed=0, augmentation=Augmentation(0)))
    original = to_unit(split.images[labels])
    mirrored = (images == original.flip(-1)).flatten(1).all(1)
    assert torch.equal(images[~mirrored], original[~mirrored])
    assert 10 < mirrored.sum() < 40


def test_crop_corners():
    image = torch.arange(1, 5, dtype=torch.uint8).reshape(1, 1, 2, 2)
    where, mirrored = torch.tensor([0, 1, 2, 2]), torch.tensor([0, 0, 0, 1])
    corners = crop(image.expand(4, 1, 2, 2), 1, where, where, mirrored)
    assert corners[:, 0].tolist() == [[[0, 0], [0, 1]], [[1, 2], [3, 4]], [[4, 0], [0, 0]], [[0, 4], [0, 0]]]


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="positive multiple of 3 processes"):
        Batches(SMALL, 16, shard=Shard(0, 3))
    with pytest.raises(InputError, match="positive multiple"):
        Batches(SMALL, 0)
    with pytest.raises(InputError, match="50 images do not fill one batch of 64: lower the batch size"):
        Batches(SMALL, 64, drop_last=True)
    with pytest.raises(InputError, match="no seed: give them one, or leave the augmentation out"):
        Batches(SMALL, 16, augmentation=AUGMENTATION)


def test_images_in_a_file_give_the_same_batches(dataset, tmp_path, monkeypatch):
    cache.write(dataset, tmp_path / "toy.safetensors", "here")
    stored = cache.read(tmp_path / "toy.safetensors", in_file=True).train
    expected = list(Batches(dataset.train, 8, seed=1, augmentation=Augmentation()).epoch(2))
    for limit in (0, RESIDENT):
        monkeypatch.setattr("lotnet.data.batches.RESIDENT", limit)
        found = list(Batches(stored, 8, seed=1, augmentation=Augmentation()).epoch(2))
        for one, other in zip(expected, found, strict=True):
            assert all(map(torch.equal, one, other))
