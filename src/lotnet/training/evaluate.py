"""Measure clean accuracy, and certified accuracy by the standard certificate."""

from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from lotnet.certification.plain import in_255ths, pairwise_constants, pixel_lipschitz, plain_radii
from lotnet.data import Batches
from lotnet.training.precision import evaluating


@dataclass(frozen=True)
class Accuracy:
    """Clean and certified accuracy in [0, 1]; `certified` maps each requested radius to an accuracy."""

    images: int
    clean: float
    certified: dict[float, float]

    def by_name(self) -> dict[str, float]:
        """Return certified accuracies by the name of the radius, such as 36/255."""
        return {in_255ths(radius): value for radius, value in self.certified.items()}

    def to_dict(self) -> dict[str, Any]:
        return {"clean": self.clean, "certified": self.by_name()}


def evaluate(model: nn.Sequential, batches: Batches, radii: tuple[float, ...], fabric: Fabric) -> Accuracy:
    """Measure accuracy in `eval()` mode and IEEE arithmetic. Each process evaluates its shards; all get the total."""
    lipschitz = pixel_lipschitz(model)
    was_training = model.training
    model.eval()
    counts = torch.zeros(2 + len(radii), dtype=torch.int64, device=fabric.device)  # images, correct, certified
    with evaluating():
        for images, labels in batches.epoch(0):
            if not len(labels):  # fewer images in the last batch than processes
                continue
            logits = model(images)
            pairwise = pairwise_constants(model[-1], logits.shape[1], logits)
            certified = plain_radii(logits, labels, pairwise, lipschitz)
            counts[0] += len(labels)
            counts[1] += (logits.argmax(dim=1) == labels).sum()
            for place, radius in enumerate(radii, start=2):
                counts[place] += (certified > radius).sum()
    model.train(was_training)
    total, *hits = reduce_over_processes(fabric, counts, "sum").tolist()
    clean, *shares = (hit / total for hit in hits)
    return Accuracy(total, clean, dict(zip(radii, shares, strict=True)))


def reduce_over_processes(fabric: Fabric, tensor: Tensor, operation: str) -> Tensor:
    """Return the sum, mean or max of a tensor over all processes."""
    result = fabric.all_reduce(tensor, reduce_op=operation)
    assert isinstance(result, Tensor)
    return result
