"""Batches with a fixed share of the images that were labeled by a teacher."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lotnet.data.counter_rng import permutation
from lotnet.errors import InputError

_LABELED, _OTHERS = 16, 17  # streams of random numbers that `Batches` does not use


@dataclass(frozen=True)
class Mixture:
    """Which images of a split form a training batch.

    An epoch is one pass over the first `labeled` images. In each batch, `share` of the places goes to the images after
    them. These are shuffled, and shuffled again each time all of them have been used.
    """

    labeled: int
    share: float

    def counts(self, batch_size: int) -> tuple[int, int]:
        """How many of the first images a batch has, and how many of the others."""
        others = round(self.share * batch_size)
        if not 0 < others < batch_size:
            raise InputError(
                f"a share of {self.share} of a batch of {batch_size} leaves no place for one kind of images: use a "
                "share nearer to a half, or a larger batch"
            )
        return batch_size - others, others

    def steps(self, batch_size: int) -> int:
        """Number of batches in an epoch."""
        first, _ = self.counts(batch_size)
        if self.labeled < first:
            raise InputError(f"{self.labeled} labeled images do not fill {first} places: lower the batch size")
        return self.labeled // first

    def order(
        self, size: int, batch_size: int, seed: int, epoch: int, device: torch.device | str
    ) -> tuple[Tensor, Tensor]:
        """The images of an epoch, batch after batch, and how often each was used before in this epoch.

        `size` is the number of all images. The result depends only on the arguments.
        """
        first, others = self.counts(batch_size)
        steps, count = self.steps(batch_size), size - self.labeled
        labeled = permutation(self.labeled, seed, epoch, _LABELED, device=device)[: steps * first]
        begin, end = epoch * steps * others, (epoch + 1) * steps * others
        passes = range(begin // count, (end - 1) // count + 1)
        stream = torch.cat([permutation(count, seed, number, _OTHERS, device=device) for number in passes])
        start = begin - passes[0] * count
        used = torch.arange(start, start + steps * others, device=device)
        order = torch.cat([labeled.view(steps, first), self.labeled + stream[used].view(steps, others)], dim=1)
        # A pass that began in the last epoch ends in this one: its images count as used once when the next pass begins.
        before = torch.cat([labeled.new_zeros(steps, first), (used // count).view(steps, others)], dim=1)
        return order.flatten(), before.flatten()
