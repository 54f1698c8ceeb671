"""An attack at exactly the radius, by steps of one unit in the last place.

Floating-point numbers are rationals. So rational arithmetic decides, without rounding, whether a perturbed image lies
within a radius.
"""

from fractions import Fraction

import torch
from torch import Tensor

from lotnet.attacks.pgd import Model, for_each, nearest_boundary, norms
from lotnet.losses import margins


def squared_distance(x: Tensor, y: Tensor) -> Fraction:
    """`||x - y||^2`, exactly."""
    pairs = [(a, b) for a, b in zip(x.flatten().tolist(), y.flatten().tolist(), strict=True) if a != b]
    ratios = [(a.as_integer_ratio(), b.as_integer_ratio()) for a, b in pairs]
    # Denominators are powers of two, so the largest is a common one, and the sum is over integers.
    scale = max((max(a[1], b[1]) for a, b in ratios), default=1)
    total = sum((a[0] * (scale // a[1]) - b[0] * (scale // b[1])) ** 2 for a, b in ratios)
    return Fraction(total, scale**2)


def is_within(x: Tensor, y: Tensor, radius: float) -> bool:
    """Whether `||x - y|| <= radius`, exactly."""
    return squared_distance(x, y) <= Fraction(radius) ** 2


def onto_sphere(images: Tensor, directions: Tensor, radius: Tensor) -> Tensor:
    """Move each image along its direction to the radius. The result is never outside in exact arithmetic.

    It is a few roundings inside at most. An image does not move if no representable point along the direction lies
    within the radius.
    """
    steps = for_each(radius.to(images), images) * directions / norms(directions)
    points = images.clone()
    eps = torch.finfo(images.dtype).eps
    for n, (image, step, limit) in enumerate(zip(images, steps, radius.tolist(), strict=True)):
        shrink = 0.0
        while shrink < 1:
            point = image + (1 - shrink) * step
            if is_within(point, image, limit):
                points[n] = point
                break
            shrink = max(4 * shrink, eps)
    return points


def rounding_search(
    model: Model,
    images: Tensor,
    labels: Tensor,
    radius: Tensor,
    *,
    start: Tensor | None = None,
    tries: int = 8,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Search for the smallest margin by steps of one unit in the last place. Points lie exactly within the radius.

    The search starts from `start`, by default at the full radius towards the nearest linearised boundary. Each try
    moves random coordinates up or down to the next number. The step is accepted if the point is still within the radius
    and the margin does not rise. Equal margins are accepted because logits are coarse: a long walk on a plateau reaches
    its edge.
    """
    if start is None:
        start = onto_sphere(images, nearest_boundary(model, images, labels), radius)
    best = start.clone()
    limits = radius.tolist()
    with torch.no_grad():
        lowest = margins(model(best), labels)
        for _ in range(tries):
            sign = torch.randint(-2, 3, best.shape, generator=generator).to(best).clamp(-1, 1)
            point = torch.where(sign == 0, best, torch.nextafter(best, torch.inf * sign))
            value = margins(model(point), labels)
            for n in (value <= lowest).nonzero().flatten().tolist():
                if is_within(point[n], images[n], limits[n]):
                    best[n], lowest[n] = point[n], value[n]
    return best
