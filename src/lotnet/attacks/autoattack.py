"""AutoAttack in l2, by the package pyautoattack."""

from typing import Any

import torch
from torch import Tensor, nn

from lotnet.attacks.pgd import Model
from lotnet.errors import InputError


class _Float32Model(nn.Module):
    """The model as a float32 module, which the package needs. The model itself computes in `dtype`."""

    def __init__(self, model: Model, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.to(self.dtype)).float()


def require_auto_attack() -> Any:
    """Import the package's class, or raise an `InputError` that names the missing extra. Call it before long work."""
    try:
        from pyautoattack import AutoAttack
    except ImportError:
        raise InputError(
            "AutoAttack needs the package pyautoattack: install it with `pip install pyautoattack`"
        ) from None
    return AutoAttack


def auto_attack_l2(
    model: Model,
    images: Tensor,
    labels: Tensor,
    radius: float | Tensor,
    *,
    steps: int = 100,
    queries: int = 5000,
    batch_size: int = 250,
    seed: int = 0,
) -> Tensor:
    """Run the standard version of AutoAttack: APGD on cross-entropy, targeted APGD, targeted FAB, Square.

    Returns perturbed images in float32 and [0, 1], or the image itself where the attack fails. The radius holds only up
    to float32 rounding. The package takes one radius at a time, so a tensor of radii is attacked image by image.
    Targeted APGD is left out for models of fewer than four classes, Square for images of fewer than five pixels a side.
    """
    standard = require_auto_attack()
    if isinstance(radius, Tensor) and radius.ndim:
        alone = [
            auto_attack_l2(model, x[None], y[None], float(r), steps=steps, queries=queries, seed=seed)
            for x, y, r in zip(images, labels, radius, strict=True)
        ]
        return torch.cat(alone) if alone else images.float()
    single = _Float32Model(model, images.dtype)
    with torch.no_grad():
        classes = single(images[:1].float()).shape[1]
    attack = standard(single, norm="L2", eps=float(radius), seed=seed, device=images.device)
    # The targeted attacks try the most likely other classes in turn: there must be that many.
    attack.apgd_targeted.n_target_classes = attack.fab.n_target_classes = min(9, classes - 1)
    attack.apgd.n_iter = attack.apgd_targeted.n_iter = attack.fab.n_iter = steps
    attack.square.n_queries = queries
    # Limits of the package: its targeted difference-of-logits ratio needs the fourth largest logit, and its Square
    # attack in l2 starts from tiles of a fifth of the image.
    impossible = {"apgd-t": classes < 4, "square": min(images.shape[-2:]) < 5}
    attack.attacks_to_run = [name for name in attack.attacks_to_run if not impossible.get(name)]
    with torch.random.fork_rng(devices=[]):  # it seeds the global generator
        perturbed, _ = attack.run_standard_evaluation(images.float(), labels, batch_size=batch_size)
    return perturbed
