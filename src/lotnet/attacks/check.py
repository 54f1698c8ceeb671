"""Check certificates by attacks at exactly the certified radius. Distances are computed in exact arithmetic."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from lotnet.attacks.autoattack import auto_attack_l2, require_auto_attack
from lotnet.attacks.pgd import Model, PGDSettings, for_each, nearest_boundary, pgd_l2
from lotnet.attacks.rounding_search import onto_sphere, rounding_search, squared_distance
from lotnet.certification.batches import Images, usual_batch
from lotnet.certification.certificate import Certificates, Claim
from lotnet.certification.rounding import Bounds, bounds
from lotnet.frozen.model import FrozenModel
from lotnet.losses import margins


@dataclass(frozen=True)
class Budget:
    """Effort that `check_certificates` spends on each image."""

    steps: int = 20
    """PGD steps from each start."""
    restarts: int = 1
    """Random starts of PGD."""
    tries: int = 8
    """Steps of the rounding search, from the best point of the other attacks."""
    auto_attack: bool = False
    """Also run AutoAttack at each radius of claim B, which takes hours on a CPU."""


@dataclass(frozen=True, eq=False)
class Counterexample:
    """A certificate that does not hold, with everything needed to verify that."""

    index: int
    claim: Claim
    attack: str
    image: Tensor
    perturbed: Tensor
    squared_distance: Fraction
    """Exact, and at most the square of `radius`."""
    radius: float
    before: int
    after: int

    @property
    def distance(self) -> float:
        """The rounded distance, for display. `squared_distance` is exact."""
        return math.sqrt(self.squared_distance)

    def to_dict(self) -> dict[str, Any]:
        """The content for JSON. Pixels keep every bit of their float64, and the squared distance is exact."""
        return {
            "index": self.index,
            "claim": self.claim,
            "attack": self.attack,
            "before": self.before,
            "after": self.after,
            "radius": self.radius,
            "distance": self.distance,
            "squared_distance": str(self.squared_distance),
            "image": self.image.tolist(),
            "perturbed": self.perturbed.tolist(),
        }

    def __str__(self) -> str:
        return (
            f"image {self.index}: {self.attack} changes the prediction from {self.before} to {self.after} at distance "
            f"{self.distance!r}, within the certified radius {self.radius!r} (claim {self.claim})"
        )


def check_certificates(
    model: FrozenModel,
    images: Images,
    certificates: Certificates,
    budget: Budget | None = None,
    *,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
) -> list[Counterexample]:
    """Attack every image that has a radius, at that radius. Return the first counterexample per image and claim.

    Claim B is about the float64 program: its prediction must not change. Claim A is about the real function. It is
    refuted where another class wins by more than the proved error of the program. An empty list means that no
    certificate was refuted.
    """
    budget = budget or Budget()
    if budget.auto_attack:
        require_auto_attack()
    device = next(iter(model.buffers())).device
    program = model.astype(torch.float64).to(device)
    limits, size = bounds(program), usual_batch(model.input_shape, batch_size)
    found = []
    claims: tuple[Claim, ...] = ("float", "real")
    for claim in claims:
        order = certificates.radii[claim].argsort(stable=True)  # batches of similar radii, which AutoAttack needs
        chosen = order[certificates.radii[claim][order] > 0]
        for index in chosen.split(size):
            if not len(index):
                continue
            x, labels = images[index].to(device, torch.float64), certificates.predictions[index].to(device)
            radius = certificates.radii[claim][index]
            seen: set[int] = set()
            effort = budget if claim == "float" else replace(budget, auto_attack=False)
            for attack, points in attack_points(program, x, labels, radius, effort, generator, model):
                with torch.no_grad():
                    logits = program(points)
                broken = logits.argmax(dim=1) != labels
                if claim == "real":
                    broken = real_margins(limits, logits, labels)[1] <= 0
                for n in broken.nonzero().flatten().tolist():
                    square = squared_distance(points[n], x[n])
                    if n not in seen and square <= Fraction(float(radius[n])) ** 2:
                        seen.add(n)
                        before, after = int(labels[n]), int(logits[n].argmax())
                        place, limit = int(index[n]), float(radius[n])
                        pair = (x[n].cpu(), points[n].cpu())
                        found.append(Counterexample(place, claim, attack, *pair, square, limit, before, after))
    return sorted(found, key=lambda example: (claims.index(example.claim), example.index))


def attack_points(
    model: Model,
    images: Tensor,
    labels: Tensor,
    radius: Tensor,
    budget: Budget,
    generator: torch.Generator | None = None,
    stored: FrozenModel | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """Yield each attack's name and its best point for each image. Points lie exactly within the radius.

    Images and radii have the precision of the attacked program, so that points are inputs it can represent. AutoAttack
    searches on the `stored` model, in its own precision, which may be faster.
    """
    step = onto_sphere(images, nearest_boundary(model, images, labels), radius)
    yield "a gradient step", step
    settings = PGDSettings(steps=budget.steps, restarts=budget.restarts)
    found = pgd_l2(model, images, labels, radius, settings, generator=generator)
    descent = onto_sphere(images, found - images, radius)
    yield "PGD", descent
    with torch.no_grad():
        better = margins(model(descent), labels) < margins(model(step), labels)
    start = torch.where(for_each(better, step), descent, step)
    yield (
        "the rounding search",
        rounding_search(model, images, labels, radius, start=start, tries=budget.tries, generator=generator),
    )
    if budget.auto_attack:
        searched, start = (model, images) if stored is None else (stored, images.to(stored.precision))
        reached = auto_attack_l2(searched, start, labels, radius, batch_size=len(images)).to(images)
        yield "AutoAttack", onto_sphere(images, reached - images, radius)


def real_margins(limits: Bounds, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Proved lower and upper bounds of the real function's smallest margin, from computed logits.

    The error of a difference of two logits is at most the rounding of both logits, plus `||w_c - w_j||` times the error
    of the features. The last factor covers the roundings in this function.
    """
    gaps = logits.gather(1, labels[:, None]) - logits
    errors = limits.logit_error.to(logits.device)
    slack = errors[labels][:, None] + errors + limits.pairs.to(logits.device)[labels] * limits.feature_error
    slack = (slack + gaps.abs() * 2.0**-52) * (1 + 2.0**-40)
    own = torch.nn.functional.one_hot(labels, logits.shape[1]).bool()
    lower, upper = (torch.where(own, torch.inf, gaps + sign * slack).amin(dim=1) for sign in (-1, 1))
    return lower, upper
