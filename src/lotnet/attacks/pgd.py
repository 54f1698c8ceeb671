"""Projected gradient descent (PGD) in l2 and l-infinity, and the step to the nearest linearised boundary.

PGD lowers the margin: the label's logit minus the largest other logit, which is the quantity that a certificate bounds.
Its gradient does not vanish where the softmax saturates, so large logits do not stop an attack. Instead, PGD can raise
the cross-entropy, as in the attack of LOT's authors.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.losses import margins

AttackLoss = Literal["margin", "cross-entropy"]
Model = Callable[[Tensor], Tensor]  # images b c h w -> logits b k


@dataclass(frozen=True)
class PGDSettings:
    """Settings of projected gradient descent (PGD). The defaults are for l2; `PGD_LINF` has those for l-infinity."""

    steps: int = 50
    """Gradient steps from each start."""
    restarts: int = 1
    """Random starts; with none, the attack returns the images."""
    step_size: float = 0.1
    """Length of a step, as a fraction of the radius."""
    clip: bool = False
    """Keep the points in [0, 1]. Off by default, because certificates also hold for inputs outside."""
    loss: AttackLoss = "margin"
    """margin lowers the margin; cross-entropy raises the cross-entropy."""


PGD_L2 = PGDSettings()
LINF_RADIUS = 8 / 255
"""The l-infinity radius of the paper's attack."""
PGD_LINF = PGDSettings(step_size=0.25, clip=True)
"""The paper's attack in all that is known of it: 50 steps within `LINF_RADIUS`, points in [0, 1]. The step of 2/255 is
that of the authors' code (`attack_pgd` in utils.py), which raises the cross-entropy; it is not said whether the paper's
table was made by that code."""


class Ball(ABC):
    """The allowed perturbations, and steepest descent in their norm. `radius` has one entry per image.

    A projected perturbation is inside up to the rounding of `images + delta`. `rounding_search.is_within` is exact.
    """

    def __init__(self, radius: float | Tensor, images: Tensor) -> None:
        size = torch.as_tensor(radius, dtype=images.dtype, device=images.device)
        self.radius = for_each(size.expand(len(images)), images)

    @abstractmethod
    def random(self, like: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw uniformly from the ball."""

    @abstractmethod
    def steepest(self, gradient: Tensor) -> Tensor:
        """The direction of norm one in which a linear function grows fastest; zero for a zero gradient."""

    @abstractmethod
    def project(self, delta: Tensor) -> Tensor:
        """The nearest allowed perturbation."""


class L2(Ball):
    def random(self, like: Tensor, generator: torch.Generator | None) -> Tensor:
        direction = self.steepest(_random(torch.randn, like.shape, like, generator))
        part = for_each(_random(torch.rand, (len(like),), like, generator), like)
        return self.radius * direction * part ** (1 / like.shape[1:].numel())

    def steepest(self, gradient: Tensor) -> Tensor:
        return unit(gradient)

    def project(self, delta: Tensor) -> Tensor:
        shrink = 1 - 64 * torch.finfo(delta.dtype).eps  # the norm and this product round
        return delta * (shrink * self.radius / norms(delta)).clamp_max(1)


class LInf(Ball):
    def random(self, like: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.radius * (2 * _random(torch.rand, like.shape, like, generator) - 1)

    def steepest(self, gradient: Tensor) -> Tensor:
        return gradient.sign()

    def project(self, delta: Tensor) -> Tensor:
        return delta.clamp(-self.radius, self.radius)


def pgd_l2(
    model: Model,
    images: Tensor,
    labels: Tensor,
    radius: float | Tensor,
    settings: PGDSettings = PGD_L2,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return, for each image, the point of smallest margin that PGD visits in the l2 ball around it."""
    return _pgd(model, images, labels, L2(radius, images), settings, generator)


def pgd_linf(
    model: Model,
    images: Tensor,
    labels: Tensor,
    radius: float | Tensor = LINF_RADIUS,
    settings: PGDSettings = PGD_LINF,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return, for each image, the point of smallest margin that PGD visits in the l-infinity ball around it."""
    return _pgd(model, images, labels, LInf(radius, images), settings, generator)


def _pgd(
    model: Model,
    images: Tensor,
    labels: Tensor,
    ball: Ball,
    settings: PGDSettings,
    generator: torch.Generator | None,
) -> Tensor:
    best = images.clone()
    with torch.no_grad():
        lowest = margins(model(images), labels)
    for _ in range(settings.restarts):
        delta = ball.random(images, generator)
        for step in range(settings.steps + 1):  # the last pass only evaluates the last point
            points = images + ball.project(delta)
            points = points.clamp(0, 1) if settings.clip else points
            value, gradient = _margin_and_gradient(model, points, labels, settings.loss)
            better = value < lowest
            best[better], lowest[better] = points[better], value[better]
            if step < settings.steps:
                delta = points - images - settings.step_size * ball.radius * ball.steepest(gradient)
    return best


def _margin_and_gradient(model: Model, points: Tensor, labels: Tensor, loss: AttackLoss) -> tuple[Tensor, Tensor]:
    """The margins, and the gradient of what the attack lowers."""
    with torch.enable_grad():
        points = points.detach().requires_grad_()
        logits = model(points)
        value = margins(logits, labels)
        lowered = value if loss == "margin" else -F.cross_entropy(logits, labels, reduction="none")
        (gradient,) = torch.autograd.grad(lowered.sum(), points)
    return value.detach(), gradient


def nearest_boundary(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    """Unit direction to the nearest decision boundary of the model linearised at each image. Exact for a linear model.

    It compares all classes, with one gradient each, because the class with the second largest logit need not have the
    nearest boundary. The direction is zero where all gradients are.
    """
    with torch.enable_grad():
        points = images.detach().requires_grad_()
        logits = model(points)
        own = logits.gather(1, labels[:, None]).squeeze(1)
        nearest = torch.full_like(own.detach(), torch.inf)
        direction = torch.zeros_like(images)
        for other in range(logits.shape[1]):
            gap = own - logits[:, other]
            (gradient,) = torch.autograd.grad(gap.sum(), points, retain_graph=True)
            distance = gap.detach() / norms(gradient).flatten()
            closer = (labels != other) & (distance < nearest)
            nearest = torch.where(closer, distance, nearest)
            direction[closer] = -unit(gradient[closer])
    return direction


def norms(x: Tensor) -> Tensor:  # b ... -> b 1 1 1
    """l2 norms, clamped above zero, so that zero divided by its norm is zero."""
    size = torch.linalg.vector_norm(x.flatten(1), dim=1).clamp_min(torch.finfo(x.dtype).tiny)
    return for_each(size, x)


def for_each(values: Tensor, x: Tensor) -> Tensor:  # b, b ... -> b 1 1 1
    """Lay out a number for each image of the batch x so that it is broadcast over its pixels."""
    return values.view(-1, *(1,) * (x.ndim - 1))


def unit(x: Tensor) -> Tensor:
    return x / norms(x)


def _random(
    draw: Callable[..., Tensor], shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None
) -> Tensor:
    device = like.device if generator is None else generator.device
    return draw(shape, generator=generator, dtype=like.dtype, device=device).to(like.device)
