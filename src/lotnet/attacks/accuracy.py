"""Accuracy under attack."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lotnet.attacks.pgd import LINF_RADIUS, PGD_LINF, Model, PGDSettings, pgd_linf
from lotnet.certification.batches import Images, batches, usual_batch
from lotnet.frozen.model import FrozenModel


def count_robust(
    model: Model,
    attack: Callable[[Tensor, Tensor], Tensor],
    images: Images,
    labels: Tensor,
    chosen: Tensor,
    device: torch.device,
    batch_size: int,
    progress: Callable[[int], None] = lambda count: None,
) -> int:
    """Count the chosen images that the float64 program still classifies correctly after the attack."""
    count = 0
    for index in chosen.nonzero().flatten().split(batch_size):
        if not len(index):
            continue
        x, y = images[index].to(device, torch.float64), labels[index].to(device)
        with torch.no_grad():
            count += int((model(attack(x, y)).argmax(dim=1) == y).sum())
        progress(len(index))
    return count


@dataclass(frozen=True)
class LInfAccuracy:
    """Clean accuracy, and accuracy under an l-infinity attack, of the float64 program, in [0, 1]."""

    images: int
    clean: float
    attacked: float


def linf_accuracy(
    model: FrozenModel,
    images: Images,
    labels: Tensor,
    radius: float = LINF_RADIUS,
    settings: PGDSettings = PGD_LINF,
    *,
    batch_size: int | None = None,
    seed: int = 0,
    progress: Callable[[int], None] = lambda count: None,
) -> LInfAccuracy:
    """Measure accuracy without an attack and under `pgd_linf`. `progress` gets counts of images done.

    `images` may be `lotnet.data.UnitImages`, which reads a batch at a time.
    """
    size = usual_batch(model.input_shape, batch_size)
    device = next(iter(model.buffers())).device
    program = model.astype(torch.float64).to(device)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        parts = [program(images[chosen].to(device, torch.float64)).cpu() for chosen in batches(len(images), size)]
    logits = torch.cat(parts)
    correct = logits.isfinite().all(dim=1) & (logits.argmax(dim=1) == labels)
    progress(int((~correct).sum()))

    def attack(x: Tensor, y: Tensor) -> Tensor:
        return pgd_linf(program, x, y, radius, settings, generator=generator)

    robust = count_robust(program, attack, images, labels, correct, device, size, progress)
    return LInfAccuracy(len(images), float(correct.double().mean()), robust / len(images))
