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

from lotnet.analysis.files import AnalysisFiles
from lotnet.analysis.plotting import SMALL, WIDTH, figure, heading, line, plain_axes, png, put_title
from lotnet.certification.batches import Images, batches, usual_batch
from lotnet.data import Split, UnitImages
from lotnet.frozen.base import FrozenModule, FrozenSequential
from lotnet.frozen.model import FrozenModel
from lotnet.palette import styles
from lotnet.progress import progress_bar
from lotnet.training.precision import arithmetic

CAPTION = (
    "Backpropagation goes from the top to the bottom: each step to the left is a layer that shortens the gradient more "
    "than its bound says, and the last point is the share of the bound that is left at the pixels."
)
KINDS = {
    "Dense": "convolution",
    "Dilated": "convolution",
    "Grouped": "convolution",
    "Kernel": "convolution",
    "Linear": "dense layer",
    "Residual": "residual layer",
    "Series": "convolution",
    "Spectrum": "convolution",
}
"""Layers that the plot names even where they keep everything. Dense and the others are forms of a convolution."""


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

    name: str
    """What distinguishes it from the models beside it, in words."""
    method: str
    """The name of its parametrization, or "" where that is unknown."""
    model: FrozenModel
    split: Split


def analyze(subjects: dict[str, Subject], batch_size: int | None, console: Console) -> dict[str, Tightness]:
    """Measure each model on its images, on the device the model is on. `subjects` are by their source."""
    found = {}
    with progress_bar(console) as progress, arithmetic(tf32=False):
        task = progress.add_task("computing gradients", total=sum(len(subject.split) for subject in subjects.values()))
        for name, subject in subjects.items():
            images = UnitImages(subject.split.pixels, subject.model.precision)
            found[name] = tightness(subject.model, images, batch_size, lambda n: progress.update(task, advance=n))
    return found


def files(subjects: dict[str, Subject], split: str, found: dict[str, Tightness], common: str) -> AnalysisFiles:
    models = [
        {"model": source, "name": subjects[source].name, "images": len(subjects[source].split), **asdict(result)}
        for source, result in found.items()
    ]
    content = {"split": split, "models": models}
    return AnalysisFiles("tightness", content, lambda: draw(subjects, found, common), CAPTION)


def tightness(
    model: FrozenModel,
    images: Images,
    batch_size: int | None = None,
    progress: Callable[[int], None] = lambda n: None,
) -> Tightness:
    """Measure the margin between the two largest logits, in the model's precision and on its device."""
    *named, (_, head) = _stages(model, "model")
    constants = torch.tensor([float(stage.lipschitz_bound()) for _, stage in named], dtype=torch.float64)
    kept, shapes = [], []
    device = next(iter(model.buffers())).device
    for chosen in batches(len(images), usual_batch(model.input_shape, batch_size)):
        batch = images[chosen].to(device, model.precision)
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


def draw(subjects: dict[str, Subject], found: dict[str, Tightness], common: str) -> bytes:
    """Plot the share that is left before each stage, from the last stage at the top to the first, a line per network.

    Stages that are no layer of `KINDS` and keep everything in all networks are left out.
    """
    lines = {source: result.stages[::-1] for source, result in found.items()}
    longest = max(lines.values(), key=len)
    labels = [_label(stage) for stage in longest]
    same = all([_label(stage) for stage in stages] == labels for stages in lines.values())
    shown = [
        n
        for n, stage in enumerate(longest)
        if not same or stage.kind in KINDS or any(stages[n].kept < 1 - 1e-4 for stages in lines.values())
    ]
    picture = figure(WIDTH, 0.26 * len(shown) + 1.6)
    axes = picture.subplots()
    looks = styles([(subjects[source].method, "") for source in lines])
    for (source, stages), style in zip(lines.items(), looks, strict=True):
        left = [1.0, *(stages[n].left for n in shown if n < len(stages))]
        share = f"{found[source].share:.3f}"
        # The number comes first, because matplotlib leaves labels that begin with _ out of a legend.
        label = f"{share}: {heading(subjects[source].name, 40)}" if len(lines) > 1 else share
        axes.plot(left, range(len(left)), marker=style.marker, markersize=5, label=label, **line(style))
    axes.set_yticks(range(len(shown) + 1), ["logits", *(labels[n] if same else str(n + 1) for n in shown)])
    axes.tick_params(axis="y", labelsize=SMALL)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.02), xlabel="gradient norm of the margin, divided by its bound")
    axes.set_ylabel("layer and shape of its output" if same else "stages back from the logits")
    put_title(picture, common or next(iter(subjects.values())).name)
    axes.legend(
        frameon=False,
        fontsize=SMALL,
        loc="upper left",
        title="left at the pixels, mean of all images",
        title_fontsize=SMALL,
    )
    plain_axes(axes)
    return png(picture)


def _label(stage: Stage) -> str:
    kind = KINDS.get(stage.kind, "".join(f" {c.lower()}" if c.isupper() else c for c in stage.kind).strip())
    return f"{kind} to {' x '.join(map(str, stage.shape))}"
