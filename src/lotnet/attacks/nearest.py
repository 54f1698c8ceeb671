"""The nearest adversarial example that PGD finds: an upper bound of the robust radius, beside the certified one."""

import base64
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lotnet.attacks.pgd import Model, PGDSettings, pgd_l2
from lotnet.certification.batches import Images
from lotnet.certification.certificate import Certificates

_ROUNDS = 10
"""Number of radii tried for each image."""
_FIRST = 0.05
"""The first radius tried is at least this."""


@dataclass(frozen=True, eq=False)
class Nearest:
    """An image that is classified correctly, and the nearest adversarial example found for it."""

    index: int
    before: int
    after: int
    radius: float
    """The certified radius, by claim B."""
    distance: float
    """The distance of the adversarial example. Never below `radius`."""
    perturbed: Tensor  # c h w, float32 in [0, 1]

    def to_dict(self) -> dict[str, Any]:
        """The content for JSON. Pixels are little-endian float32 bytes in base64."""
        pixels = base64.b64encode(self.perturbed.numpy().astype("<f4").tobytes()).decode()
        return vars(self) | {"perturbed": pixels}


def nearest_examples(
    model: Model,
    images: Images,
    labels: Tensor,
    certificates: Certificates,
    *,
    count: int = 12,
    steps: int = 20,
    generator: torch.Generator | None = None,
) -> list[Nearest]:
    """Attack the `count` least and the `count` most robust images. Images for which PGD finds nothing are left out.

    `model` is the float64 program.
    """
    radii = certificates.radii["float"]
    held = (certificates.correct() & (radii > 0)).nonzero().flatten()
    order = held[radii[held].argsort(stable=True)]
    chosen = torch.cat([order[:count], order[max(count, len(order) - count) :]])
    if not len(chosen):
        return []
    before, certified = labels[chosen], radii[chosen]
    points, distances, after = nearest_adversarial(model, images[chosen].double(), before, certified, steps, generator)
    return [
        Nearest(int(n), int(before[i]), int(after[i]), float(certified[i]), float(distances[i]), points[i].cpu())
        for i, n in enumerate(chosen)
        if distances[i].isfinite()
    ]


def nearest_adversarial(
    model: Model, images: Tensor, labels: Tensor, certified: Tensor, steps: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return adversarial examples in float32 and [0, 1], their distances, and their predicted classes.

    The radius of PGD is doubled until PGD succeeds. Then bisection between success and failure shrinks it, never below
    the certified radius. A distance is infinite where no radius succeeded.
    """
    best, after = images.float(), labels.clone()
    low, high = certified.to(images), torch.full_like(certified, torch.inf).to(images)
    radius = 2 * low.clamp_min(_FIRST / 2)
    settings = PGDSettings(steps=steps, clip=True)
    for _ in range(_ROUNDS):
        found = pgd_l2(model, images, labels, radius, settings, generator=generator).float()
        with torch.no_grad():
            classes = model(found.to(images)).argmax(dim=1)
        distance = torch.linalg.vector_norm((found.to(images) - images).flatten(1), dim=1)
        success = classes != labels
        nearer = success & (distance < high)
        best[nearer], after[nearer], high[nearer] = found[nearer], classes[nearer], distance[nearer]
        low = torch.where(success, low, torch.maximum(low, radius))
        radius = torch.where(high.isfinite(), (low + high) / 2, 2 * radius)
    return best, high, after
