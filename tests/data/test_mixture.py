"""Batches with a fixed share of the images that a teacher labeled."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_data import random_split

from lotnet.data import Augmentation, Batches, Mixture, Shard, Split
from lotnet.errors import InputError


def numbered(size: int, labeled: int, share: float) -> Split:
    """A split whose labels are the numbers of its images."""
    return Split(random_split(size, 2, (3, 8, 8)).images, torch.arange(size), Mixture(labeled, share))


def labels_of(split: Split, batch_size: int, epoch: int, shard: Shard = Shard()) -> list[torch.Tensor]:  # noqa: B008
    batches = Batches(split, batch_size, seed=3, drop_last=True, shard=shard)
    return [labels for _, labels in batches.epoch(epoch)]


@given(st.integers(20, 60), st.integers(1, 60), st.integers(2, 12), st.floats(0.2, 0.8))
@settings(max_examples=40, deadline=None)
def test_every_batch_has_its_share_and_all_images_have_their_turn(
    labeled: int, others: int, batch_size: int, share: float
) -> None:
    mixture = Mixture(labeled, share)
    try:
        first, second = mixture.counts(batch_size)
    except InputError:
        return
    epochs = 3 + 3 * others // second
    seen = torch.zeros(labeled + others, dtype=torch.int64)
    for epoch in range(epochs):
        batches = labels_of(numbered(labeled + others, labeled, share), batch_size, epoch)
        assert len(batches) == labeled // first
        for labels in batches:
            assert int((labels < labeled).sum()) == first and len(labels) == first + second
            seen += torch.bincount(labels, minlength=len(seen))
        used = torch.cat(batches)
        assert torch.bincount(used[used < labeled]).max() == 1, "an epoch uses a labeled image once"
    turns = seen[labeled:]
    assert turns.max() - turns.min() <= 1, "all others are used before one is used again"


def test_the_shards_are_the_global_batch_and_any_step_can_be_the_first() -> None:
    split = numbered(50, 20, 0.5)
    whole = labels_of(split, 8, 2)
    shards = [labels_of(split, 8, 2, Shard(rank, 2)) for rank in range(2)]
    for labels, pair in zip(whole, zip(*shards, strict=True), strict=True):
        assert torch.equal(labels, torch.cat(pair))
    late = [labels for _, labels in Batches(split, 8, seed=3, drop_last=True).epoch(2, start_step=3)]
    assert all(map(torch.equal, late, whole[3:]))


def test_an_image_that_is_used_twice_in_an_epoch_is_augmented_anew() -> None:
    split = Split(torch.arange(22 * 64).view(22, 1, 8, 8).to(torch.uint8), torch.arange(22), Mixture(20, 0.5))
    batches = Batches(split, 4, seed=0, augmentation=Augmentation(padding=3, flip=True), drop_last=True)
    images, labels = (torch.cat(part) for part in zip(*batches.epoch(1), strict=True))
    copies = images[labels == 21]
    assert len(copies) == 10 and len(copies.flatten(1).unique(dim=0)) > 5


def test_without_a_seed_a_split_keeps_its_order() -> None:
    split = numbered(30, 20, 0.5)
    assert torch.cat([labels for _, labels in Batches(split, 8).epoch(0)]).tolist() == list(range(30))
    assert split.select(slice(0, 20)).mixture is None


def test_a_share_that_leaves_no_place_is_refused() -> None:
    with pytest.raises(InputError, match=r"a share of 0\.01 of a batch of 8 leaves no place"):
        Batches(numbered(30, 20, 0.01), 8, seed=0)
    with pytest.raises(InputError, match="3 labeled images do not fill 4 places"):
        Batches(numbered(30, 3, 0.5), 8, seed=0)
