"""The loss around a trained network, along two random directions in the space of its free kernels.

Invariants:

* each filter of a direction has the norm of the filter it moves (Li et al. 2018), so a step of one means the same for
  networks of any scale. Biases, activation angles and residual mixes do not move;
* the center of the grid is the network itself, and the analysis leaves the network unchanged.

LOT and SOC do not depend on the scale of a kernel, so only the change of a kernel's direction matters.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial

import torch
from rich.console import Console
from torch import Tensor, nn

from lotnet.analysis.files import AnalysisFiles
from lotnet.analysis.networks import Network
from lotnet.analysis.plotting import SMALL, WIDTH, figure, heading, png, put_title, round_levels
from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.data import to_unit
from lotnet.errors import InputError
from lotnet.layers import NormalizedLinear, OrthogonalConv2d
from lotnet.losses import Loss
from lotnet.progress import progress_bar
from lotnet.runs.data import split_subset
from lotnet.training.precision import evaluating

CAPTION = (
    "The cross is the trained network, and all panels have the same levels: closed rings around the cross alone are a "
    "smooth bowl, and rings elsewhere are further minima or peaks."
)


@dataclass(frozen=True)
class LandscapeSettings:
    """The images, and the grid."""

    split: str = "train"
    """The images that the loss is computed on: train or test."""
    limit: int | None = 1000
    """Number of images; None takes all."""
    points: int = 25
    """Grid points along each direction, an odd number."""
    span: float = 1.0
    """Longest step, in filter norms."""
    batch_size: int = 1000
    seed: int = 0
    """Seed of the directions."""


@dataclass(frozen=True)
class Landscape:
    """Mean loss on a square grid of steps."""

    steps: tuple[float, ...]
    """Steps along both directions, in filter norms."""
    loss: tuple[tuple[float, ...], ...]
    """One row per step along the second direction."""

    @property
    def center(self) -> float:
        """Loss of the network itself."""
        middle = len(self.steps) // 2
        return self.loss[middle][middle]

    def minima(self) -> int:
        """Number of inner grid points below all of their eight neighbours. A convex bowl has one."""
        values = torch.tensor(self.loss, dtype=torch.float64)
        around = nn.functional.unfold(values[None, None], 3)[0]  # nine values of each inner point, itself the fifth
        others = around[[n for n in range(9) if n != 4]]
        return int((around[4] < others).all(dim=0).sum())


def analyze(networks: list[Network], settings: LandscapeSettings, console: Console) -> dict[str, Landscape]:
    """Compute the loss surface of each network, by name."""
    found = {}
    with progress_bar(console) as progress, evaluating():
        task = progress.add_task("evaluating losses", total=len(networks) * settings.points**2)
        for network in networks:
            weight = next(network.model.parameters())
            split = split_subset(network.dataset(), settings.split, settings.limit)
            images, labels = to_unit(split.images, weight.dtype).to(weight.device), split.labels.to(weight.device)
            found[network.name] = landscape(
                network.model,
                partial(mean_loss, network.model, network.loss, images, labels, settings.batch_size),
                settings.points,
                settings.span,
                settings.seed,
                lambda: progress.update(task, advance=1),
            )
    return found


def files(networks: list[Network], settings: LandscapeSettings, found: dict[str, Landscape]) -> AnalysisFiles:
    content = {
        "split": settings.split,
        "limit": settings.limit,
        "seed": settings.seed,
        "surfaces": [
            {"run": network.source, "name": network.name, "loss_kind": type(network.loss).__name__}
            | {"minima": found[network.name].minima(), **asdict(found[network.name])}
            for network in networks
        ],
    }
    return AnalysisFiles("landscape", content, lambda: draw(found, networks[0].common), CAPTION)


def kernels(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that the directions move. A filter is the part of a kernel that computes one output channel."""
    return [layer.weight for layer in model.modules() if isinstance(layer, OrthogonalConv2d | NormalizedLinear)]


def direction(weights: list[nn.Parameter], generator: torch.Generator) -> list[Tensor]:
    """A Gaussian direction, with each filter scaled to the norm of the filter it moves."""
    moves = []
    for weight in weights:
        move = torch.randn(weight.shape, generator=generator, dtype=torch.float64).to(weight)
        scale = weight.detach().flatten(1).norm(dim=1) / move.flatten(1).norm(dim=1)
        moves.append(move * scale.view(-1, *[1] * (move.ndim - 1)))
    return moves


@torch.no_grad()
def mean_loss(model: nn.Sequential, loss: Loss, images: Tensor, labels: Tensor, batch_size: int) -> float:
    """Mean loss as at the end of training. Layers orthogonalise as in training; everything else is in `eval()` mode."""
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
    """Evaluate `value()`, which reads the model's weights, on `points` x `points` steps from -span to span."""
    if points < 3 or points % 2 == 0:
        raise InputError(f"a grid of {points} points has no center with neighbours: give an odd number from 3 up")
    if not span > 0:
        raise InputError(f"the span is {span}: give a positive number, in filter norms")
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


def draw(surfaces: dict[str, Landscape], common: str) -> bytes:
    """Plot contours as a PNG, one panel per network, all with the same levels."""
    columns = min(len(surfaces), 2)
    rows = -(-len(surfaces) // columns)
    picture = figure(WIDTH if columns == 2 else 4.8, 3.2 * rows + 0.6)
    put_title(picture, common)
    panels = picture.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flatten()
    values = torch.tensor([surface.loss for surface in surfaces.values()], dtype=torch.float64)
    levels = round_levels(float(values.min()), float(values.max()), 16)
    for panel in panels[len(surfaces) :]:
        panel.axis("off")
    for panel, (name, surface) in zip(panels, surfaces.items(), strict=False):
        drawn = panel.contourf(surface.steps, surface.steps, surface.loss, levels=levels, cmap="viridis")
        panel.contour(surface.steps, surface.steps, surface.loss, levels=levels, colors="white", linewidths=0.5)
        panel.plot(0, 0, "+", color="white", markersize=9)
        panel.set_title(heading(name, 40), fontsize=SMALL + 1)
        panel.set_aspect("equal")
        panel.locator_params(nbins=5)
    picture.supxlabel("step along direction 1 (filter norms)", fontsize=SMALL + 1)
    picture.supylabel("step along direction 2 (filter norms)", fontsize=SMALL + 1)
    picture.colorbar(drawn, ax=list(panels), label="mean loss", ticks=levels[::2], shrink=0.85)
    return png(picture)
