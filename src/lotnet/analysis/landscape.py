"""The loss around a trained network, on two random directions in the space of its free kernels.

Invariants:

* a direction has, filter by filter, the norm of the kernel it moves (Li et al. 2018), so that a step of one means the
  same for networks of any scale: biases, activation angles and residual mixes stay where they are;
* the middle of the grid is the network itself, which is left as it was found.

LOT and SOC do not change with the scale of a whole kernel, so only what a direction turns matters.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lotnet.analysis.plotting import figure, heading, png
from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.errors import InputError
from lotnet.layers import NormalizedLinear, OrthogonalConv2d
from lotnet.losses import Loss


@dataclass(frozen=True)
class Landscape:
    """Mean loss on a square grid of steps."""

    steps: tuple[float, ...]
    """Along both directions, in norms of the filters."""
    loss: tuple[tuple[float, ...], ...]
    """A row for each step along the second direction."""

    @property
    def center(self) -> float:
        """Of the network itself."""
        middle = len(self.steps) // 2
        return self.loss[middle][middle]

    def minima(self) -> int:
        """Inner points of the grid that lie below all of their eight neighbours; a bowl has one."""
        values = torch.tensor(self.loss, dtype=torch.float64)
        around = nn.functional.unfold(values[None, None], 3)[0]  # nine values of each inner point, itself the fifth
        others = around[[n for n in range(9) if n != 4]]
        return int((around[4] < others).all(dim=0).sum())


def kernels(model: nn.Module) -> list[nn.Parameter]:
    """What the directions move: a filter is all that one output reads."""
    return [layer.weight for layer in model.modules() if isinstance(layer, OrthogonalConv2d | NormalizedLinear)]


def direction(weights: list[nn.Parameter], generator: torch.Generator) -> list[Tensor]:
    """Gaussian, then every filter scaled to the norm of the one it moves."""
    moves = []
    for weight in weights:
        move = torch.randn(weight.shape, generator=generator, dtype=torch.float64).to(weight)
        scale = weight.detach().flatten(1).norm(dim=1) / move.flatten(1).norm(dim=1)
        moves.append(move * scale.view(-1, *[1] * (move.ndim - 1)))
    return moves


@torch.no_grad()
def mean_loss(model: nn.Sequential, loss: Loss, images: Tensor, labels: Tensor, batch_size: int) -> float:
    """As at the end of training. Layers orthogonalise as in training; everything else is in `eval()` mode."""
    model.eval()
    for layer in model.modules():
        if isinstance(layer, OrthogonalConv2d):
            layer.train()
    total, lipschitz = 0.0, pixel_lipschitz(model)
    for x, y in zip(images.split(batch_size), labels.split(batch_size), strict=True):
        logits = model(x)
        pairwise = pairwise_constants(model[-1], logits.shape[1], logits)
        total += len(y) * float(loss(logits, y, lipschitz, pairwise, 1.0))
    model.eval()
    return total / len(labels)


@torch.no_grad()
def landscape(
    model: nn.Module,
    value: Callable[[], float],
    points: int,
    span: float,
    seed: int,
    progress: Callable[[], None] = lambda: None,
) -> Landscape:
    """`value()`, which reads the model's weights, on `points` x `points` steps from -span to span."""
    if points < 3 or points % 2 == 0:
        raise InputError(f"a grid of {points} points has no middle with neighbours: give an odd number from 3")
    if not span > 0:
        raise InputError(f"the span is {span}: give a positive one, in norms of the filters")
    weights = kernels(model)
    generator = torch.Generator().manual_seed(seed)
    first, second = direction(weights, generator), direction(weights, generator)
    start = [weight.detach().clone() for weight in weights]
    half = points // 2
    steps = tuple(span * n / half for n in range(-half, half + 1))
    rows = []
    with ExitStack() as stack:
        stack.callback(_place, weights, start)
        for b in steps:
            row = []
            for a in steps:
                _place(weights, [s + a * p + b * q for s, p, q in zip(start, first, second, strict=True)])
                row.append(value())
                progress()
            rows.append(tuple(row))
    return Landscape(steps, tuple(rows))


@torch.no_grad()
def _place(weights: list[nn.Parameter], values: list[Tensor]) -> None:
    for weight, place in zip(weights, values, strict=True):
        weight.copy_(place)


def draw(surfaces: dict[str, Landscape]) -> bytes:
    """Level lines as a PNG, a square for each network, all with the same levels."""
    picture = figure(2.6 * len(surfaces) + 0.7, 2.7)
    squares = picture.subplots(1, len(surfaces), squeeze=False)[0]
    values = torch.tensor([surface.loss for surface in surfaces.values()], dtype=torch.float64)
    low, high = float(values.min()), float(values.max())
    levels = torch.linspace(low, high if high > low else low + 1, 20).tolist()
    for square, (name, surface) in zip(squares, surfaces.items(), strict=True):
        drawn = square.contourf(surface.steps, surface.steps, surface.loss, levels=levels, cmap="viridis")
        square.contour(surface.steps, surface.steps, surface.loss, levels=levels, colors="white", linewidths=0.4)
        square.plot(0, 0, "r+")
        square.set_title(heading(name, 34), fontsize=9)
        square.set_aspect("equal")
    picture.colorbar(drawn, ax=list(squares), label="loss", shrink=0.85)
    return png(picture)
