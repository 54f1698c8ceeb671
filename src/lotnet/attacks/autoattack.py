"""AutoAttack in l2, by the package pyautoattack."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lotnet.attacks.pgd import Model
from lotnet.certification.batches import usual_batch
from lotnet.errors import InputError


class _Float32Model(nn.Module):
    """The model as a float32 module, which the package needs. The model itself computes in `dtype`."""

    def __init__(self, model: Model, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.to(self.dtype)).float()


class _BallsOfOneSize(nn.Module):
    """A model on images with radii of their own, for a package that takes one radius at a time.

    The package attacks each image x at the largest radius R. The model is evaluated at `x + (r / R) (v - x)` for each
    point v, which lies in the ball of radius r if v lies in that of radius R. Whose ball v is in is known because
    images are more than 2 R apart: it is the nearest image.
    """

    def __init__(self, model: Model, images: Tensor, shares: Tensor) -> None:
        super().__init__()
        self.model, self.images, self.shares = model, images, shares

    def forward(self, v: Tensor) -> Tensor:
        with torch.no_grad():
            nearest = torch.cdist(v.flatten(1), self.images.flatten(1)).argmin(dim=1)
        x = self.images[nearest]
        return self.model(x + self.shares[nearest].view(-1, 1, 1, 1) * (v - x))


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
    batch_size: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Run the standard version of AutoAttack: APGD on cross-entropy, targeted APGD, targeted FAB, Square.

    Returns perturbed images in float32 and [0, 1], or the image itself where the attack fails. The radius is one for
    all images, or a tensor with one for each. It holds only up to float32 rounding. Images with radius zero stay as
    they are. Targeted APGD is left out for models of fewer than four classes, Square for images of fewer than five
    pixels a side.
    """
    standard = require_auto_attack()
    size = usual_batch(images.shape[1:], batch_size)
    if isinstance(radius, Tensor) and radius.ndim:
        attack_group = partial(auto_attack_l2, steps=steps, queries=queries, batch_size=size, seed=seed)
        return _at_own_radii(attack_group, model, images, labels, radius.to(images.device), size)
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
        perturbed, _ = attack.run_standard_evaluation(images.float(), labels, batch_size=size)
    return perturbed


def _at_own_radii(
    attack_group: Callable[..., Tensor], model: Model, images: Tensor, labels: Tensor, radius: Tensor, size: int
) -> Tensor:
    """Attack each image at its own radius, in groups of at most `size`."""
    found = images.float().clone()
    for index, largest in groups_of_distant_images(images, radius, size):
        chosen, shares = images[index], radius[index] / largest
        balls = _BallsOfOneSize(model, chosen, shares.to(images))
        start = chosen.float()
        moved = attack_group(balls, chosen, labels[index], largest) - start
        found[index] = start + shares.to(moved).view(-1, 1, 1, 1) * moved
    return found


def groups_of_distant_images(images: Tensor, radius: Tensor, size: int) -> list[tuple[Tensor, float]]:
    """Divide images with a positive, finite radius into groups. Returns the indices and the largest radius of each.

    A group has at most `size` images, whose radii differ by a factor of two at most. They are more than twice the
    group's largest radius apart.
    """
    flat = images.flatten(1).double()
    radii = radius.tolist()
    groups: list[tuple[list[int], float]] = []
    for n in sorted(range(len(radii)), key=lambda n: -radii[n]):
        if not 0 < radii[n] < math.inf:
            continue
        for members, largest in groups:
            alike = len(members) < size and 2 * radii[n] >= largest
            if alike and bool(((flat[members] - flat[n]).norm(dim=1) > 2.001 * largest).all()):
                members.append(n)
                break
        else:
            groups.append(([n], radii[n]))
    return [(torch.tensor(members, device=images.device), largest) for members, largest in groups]
