"""How much of its proved Lipschitz bound a network uses, and where the rest is lost.

A radius is a margin over a bound of its gradient. Follow that gradient from the last layer back to the pixels: each
stage multiplies its norm by at most the stage's constant, and what it keeps of that is the share of the radius that is
not given away there.

Invariants: every share lies between 0 and 1, up to rounding; for one image the product over all stages is the norm of
the margin's gradient over its bound.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lotnet.analysis.plotting import figure, heading, png
from lotnet.frozen.base import FrozenModule, FrozenSequential
from lotnet.frozen.model import FrozenModel


@dataclass(frozen=True)
class Stage:
    """One stage of a frozen network, the last layer left out."""

    name: str
    """As `lotnet certify` has it, but that a residual is one stage."""
    kind: str
    shape: tuple[int, ...]
    """Of its output."""
    kept: float
    """Norm of the gradient before it, over its constant times the norm behind it: the mean over images."""
    left: float
    """The product from the last layer back to before this stage: the mean over images."""


@dataclass(frozen=True)
class Tightness:
    stages: list[Stage]
    share: float
    """Norm of the margin's gradient over its bound, mean over images; 1 is a certificate that gives nothing away, as
    far as the gradient tells."""
    spread: tuple[float, float]
    """The 5 % and the 95 % quantile of that."""

    @property
    def worst(self) -> Stage:
        return min(self.stages, key=lambda stage: stage.kept)


def tightness(
    model: FrozenModel, images: Tensor, batch_size: int = 250, progress: Callable[[int], None] = lambda n: None
) -> Tightness:
    """Of the margin between the predicted class and the next, on images in the model's precision and place."""
    *named, (_, head) = _stages(model, "model")
    constants = torch.tensor([float(stage.lipschitz_bound()) for _, stage in named], dtype=torch.float64)
    kept, shapes = [], []
    for batch in images.split(batch_size):
        points = [batch.detach().requires_grad_()]
        for _, stage in named:
            points.append(stage(points[-1]))
        first, second = head(points[-1]).topk(2, dim=1).values.unbind(dim=1)
        gradients = torch.autograd.grad((first - second).sum(), points)
        norms = torch.stack([gradient.flatten(1).norm(dim=1).cpu().double() for gradient in gradients])  # stages + 1, b
        kept.append((norms[:-1] / (constants[:, None] * norms[1:])).nan_to_num(0.0))
        shapes = [tuple(point.shape[1:]) for point in points[1:]]
        progress(len(batch))
    shares = torch.cat(kept, dim=1)
    left = shares.flip(0).cumprod(dim=0).flip(0)
    quantiles = left[0].quantile(torch.tensor([0.05, 0.95], dtype=left.dtype)).tolist()
    stages = [
        Stage(name, type(stage).__name__.removeprefix("Frozen"), shape, float(share), float(rest))
        for (name, stage), shape, share, rest in zip(named, shapes, shares.mean(dim=1), left.mean(dim=1), strict=True)
    ]
    return Tightness(stages, float(left[0].mean()), (quantiles[0], quantiles[1]))


def _stages(module: FrozenModule, name: str) -> Iterator[tuple[str, FrozenModule]]:
    """What comes one after the other."""
    if isinstance(module, FrozenSequential):
        for n, stage in enumerate(module):
            yield from _stages(stage, f"{name}.{n}")
    else:
        yield name, module


def draw(found: dict[str, Tightness]) -> bytes:
    """A PNG: what is left of the gradient's bound before each stage, from the last back, a line for each network."""
    picture = figure(7.5, 4)
    axes = picture.subplots()
    for name, result in found.items():
        left = [1.0, *(stage.left for stage in result.stages[::-1])]
        axes.plot(range(len(left)), left, "o-", markersize=3, label=f"{heading(name, 40)}: {result.share:.3f}")
    shapes = {tuple(stage.shape for stage in result.stages[::-1]) for result in found.values()}
    if len(shapes) == 1:  # then they can be named
        names = ["x".join(map(str, shape)) for shape in next(iter(shapes))]
        axes.set_xticks(range(1, len(names) + 1), names, rotation=60, ha="right", fontsize=7)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("left of the gradient's bound")
    axes.set_xlabel("stages by their output, from the last back to the first")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    return png(picture)
