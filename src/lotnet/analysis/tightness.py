"""How much of its proved Lipschitz bound a network uses, and which stages lose the rest.

A certified radius is a margin divided by a bound of the margin's gradient. Backpropagation takes that gradient from the
last layer to the pixels. Each stage multiplies its norm by at most the stage's Lipschitz constant. The factor that the
gradient reaches, divided by the constant, is the share of the radius that the stage keeps.

Invariants, up to rounding: every share lies between 0 and 1; for one image the product over all stages is the norm of
the margin's gradient divided by its bound.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from torch import Tensor

from lotnet.analysis.files import AnalysisFiles
from lotnet.analysis.plotting import figure, heading, png
from lotnet.data import Split, to_unit
from lotnet.frozen.base import FrozenModule, FrozenSequential
from lotnet.frozen.model import FrozenModel
from lotnet.progress import progress_bar
from lotnet.training.precision import arithmetic


@dataclass(frozen=True)
class Stage:
    """One stage of a frozen network before its last layer."""

    name: str
    """Name as `lotnet certify` prints it. A residual is one stage."""
    kind: str
    shape: tuple[int, ...]
    """Shape of its output."""
    kept: float
    """Gradient norm at its input, divided by its Lipschitz constant times the norm at its output: mean over images."""
    left: float
    """Product of `kept` from the last stage back to this one: mean over images."""


@dataclass(frozen=True)
class Tightness:
    """The shares of one network."""

    stages: list[Stage]
    share: float
    """Norm of the margin's gradient divided by its bound, mean over images. At 1 no radius is lost, as far as the
    gradient tells."""
    spread: tuple[float, float]
    """The 5 % and the 95 % quantile of the share."""

    @property
    def worst(self) -> Stage:
        """The stage that keeps least."""
        return min(self.stages, key=lambda stage: stage.kept)


@dataclass(frozen=True, eq=False)
class Subject:
    """A frozen model, and the images that its tightness is measured on."""

    model: FrozenModel
    split: Split


def analyze(subjects: dict[str, Subject], batch_size: int, console: Console) -> dict[str, Tightness]:
    """Measure each model on its images, on the device the model is on."""
    found = {}
    with progress_bar(console) as progress, arithmetic(tf32=False):
        task = progress.add_task("computing gradients", total=sum(len(subject.split) for subject in subjects.values()))
        for name, subject in subjects.items():
            device = next(iter(subject.model.buffers())).device
            images = to_unit(subject.split.images).to(device)
            found[name] = tightness(subject.model, images, batch_size, lambda n: progress.update(task, advance=n))
    return found


def files(subjects: dict[str, Subject], split: str, found: dict[str, Tightness]) -> AnalysisFiles:
    models = [{"model": name, "images": len(subjects[name].split), **asdict(result)} for name, result in found.items()]
    return AnalysisFiles("tightness", {"split": split, "models": models}, lambda: draw(found))


def tightness(
    model: FrozenModel, images: Tensor, batch_size: int = 250, progress: Callable[[int], None] = lambda n: None
) -> Tightness:
    """Measure the margin between the two largest logits, on images in the model's precision and on its device."""
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
    """The stages in order, with nested sequences flattened."""
    if isinstance(module, FrozenSequential):
        for n, stage in enumerate(module):
            yield from _stages(stage, f"{name}.{n}")
    else:
        yield name, module


def draw(found: dict[str, Tightness]) -> bytes:
    """Plot the share that is left before each stage, from the last stage back to the first, one line per network."""
    picture = figure(7.5, 4)
    axes = picture.subplots()
    for name, result in found.items():
        left = [1.0, *(stage.left for stage in result.stages[::-1])]
        axes.plot(range(len(left)), left, "o-", markersize=3, label=f"{result.share:.3f} {heading(name, 40)}")
    shapes = {tuple(stage.shape for stage in result.stages[::-1]) for result in found.values()}
    if len(shapes) == 1:  # all networks have the same stages, so the axis can name them
        names = ["x".join(map(str, shape)) for shape in next(iter(shapes))]
        axes.set_xticks(range(1, len(names) + 1), names, rotation=60, ha="right", fontsize=7)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("gradient norm divided by its bound")
    axes.set_xlabel("shape of each stage's output, from the last stage back to the first")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    return png(picture)
