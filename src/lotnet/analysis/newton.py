"""Singular values of a network's LOT layers at every step of the paper's Newton iteration, and of lotnet's schedule.

Invariants, up to rounding in float64:

* in the paper's iteration the largest singular value rises and is at most one, so it is at most the paper's bound;
* in lotnet's schedule it exceeds one on the way (up to 1.99), and is at most one at the end.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from torch import Tensor, nn

from lotnet.analysis.files import AnalysisFiles
from lotnet.analysis.networks import Network
from lotnet.analysis.plotting import SMALL, WIDTH, figure, plain_axes, png, put_title, shades
from lotnet.errors import InputError
from lotnet.layers.conv import OrthogonalConv2d
from lotnet.layers.trace import trace_geometries
from lotnet.linalg.polar import iterate, normalize, sigma_min
from lotnet.linalg.polynomials import schedule
from lotnet.paper.newton_bound import newton_error_bound, newton_iterates
from lotnet.parametrizations.base import Geometry
from lotnet.parametrizations.lot import LOT, matrices
from lotnet.progress import progress_bar

PAPER_STEPS = 10
OBSERVED = 8
"""The step after which the paper finds every largest singular value above 0.9999."""
CAPTION = (
    "A layer is orthogonal where its smallest singular value, a dotted line, has reached one too: see how many steps "
    "that takes in the paper's iteration, and in lotnet's schedule."
)
_ROUNDING = 1e-12
_NAMED = 8  # most layers that the legend names
_CHUNK = 64  # matrices in memory at one time


@dataclass(frozen=True)
class Convergence:
    """One iteration on one layer, over all frequencies. Entry k is the value after k steps."""

    largest: tuple[float, ...]
    smallest: tuple[float, ...]


@dataclass(frozen=True)
class LayerConvergence:
    """Both iterations on one layer, in float64."""

    name: str
    shape: tuple[int, int]
    """Shape of its transfer matrices, the short side first."""
    frequencies: int
    """Number of distinct matrices."""
    condition: float | None
    """The largest condition number; None where a matrix is singular."""
    paper: Convergence
    bound: tuple[float | None, ...]
    """The paper's bound of `paper.largest`; None where the bound is infinite."""
    ours: Convergence


def analyze(network: Network, console: Console) -> list[LayerConvergence]:
    """Measure every LOT layer of a network."""
    layers = lot_layers(network.model, network.shape)
    if not layers:
        raise InputError(
            f"{network.source} has no LOT layer, so no Newton iteration: analyse a run with parametrization lot"
        )
    with progress_bar(console) as progress:
        named = progress.track(layers.items(), description="iterating layers")
        return [layer_convergence(name, layer, geometry) for name, (layer, geometry) in named]


def files(network: Network, layers: list[LayerConvergence]) -> AnalysisFiles:
    content = {"run": network.source, "layers": [asdict(layer) for layer in layers]}
    return AnalysisFiles("newton", content, lambda: draw(layers, network.name), CAPTION)


def lot_layers(model: nn.Module, shape: tuple[int, int, int]) -> dict[str, tuple[OrthogonalConv2d, Geometry]]:
    """The LOT layers by name, each with its geometry when the model reads an image of this shape."""
    geometries = trace_geometries(model, next(model.parameters()).new_zeros(1, *shape))
    names = {module: name for name, module in model.named_modules()}
    return {
        names[layer]: (layer, geometry)
        for layer, geometry in geometries.items()
        if isinstance(layer.parametrization, LOT)
    }


@torch.no_grad()
def layer_convergence(name: str, layer: OrthogonalConv2d, geometry: Geometry) -> LayerConvergence:
    """Measure one layer, with the schedule that its parametrization uses in training."""
    lot = layer.parametrization
    assert isinstance(lot, LOT)
    batches = matrices(layer.weight.double(), geometry)
    # V and V* have the same singular values in both iterations. The paper's theorem is about matrices with no more rows
    # than columns.
    batches = [v if v.shape[-2] <= v.shape[-1] else v.mH.resolve_conj() for v in batches]
    parts = [part for v in batches for part in v.split(_CHUNK)]
    if not all(bool(part.isfinite().all()) and bool(part.flatten(1).any(dim=1).all()) for part in parts):
        raise InputError(f"layer {name} has a matrix that is zero or not finite, which cannot be rescaled: train again")
    m, n = parts[0].shape[-2:]
    singular = [torch.linalg.svdvals(part) for part in parts]
    condition = max(float((s[:, 0] / s[:, -1]).max()) for s in singular)
    bounds = [max(float(newton_error_bound(part, k).max()) for part in parts) for k in range(PAPER_STEPS + 1)]
    return LayerConvergence(
        name=name,
        shape=(m, n),
        frequencies=sum(len(part) for part in parts),
        condition=condition if math.isfinite(condition) else None,
        paper=_extremes([newton_iterates(part, PAPER_STEPS) for part in parts]),
        bound=tuple(bound if math.isfinite(bound) else None for bound in bounds),
        ours=_extremes([_our_iterates(part, lot) for part in parts]),
    )


def _our_iterates(v: Tensor, lot: LOT) -> Iterator[Tensor]:
    """The scaled matrices, then the matrices after each polynomial of the schedule."""
    polynomials = schedule(sigma_min(v.shape[-2], lot.condition), lot.tolerance)
    x, _, gram, square = normalize(v)
    yield x
    for steps in range(1, len(polynomials) + 1):
        yield iterate(x, gram, square, polynomials[:steps])[0]


def _extremes(sequences: list[Iterator[Tensor]]) -> Convergence:
    """Largest and smallest singular value over all matrices of all batches, step by step."""
    largest, smallest = [], []
    for iterates in zip(*sequences, strict=True):
        values = [torch.linalg.svdvals(w) for w in iterates]
        largest.append(max(float(s[:, 0].max()) for s in values))
        smallest.append(min(float(s[:, -1].min()) for s in values))
    return Convergence(tuple(largest), tuple(smallest))


def observed(layers: list[LayerConvergence]) -> str:
    """The paper's observation on the largest singular value, as measured here, in one sentence."""
    least = min(layer.paper.largest[OBSERVED] for layer in layers)
    pairs = [pair for layer in layers for pair in zip(layer.paper.largest, layer.bound, strict=True)]
    excess = max((value - bound for value, bound in pairs if bound is not None), default=None)
    if excess is None:
        rest = "which has no bound, as every layer has a singular matrix"
    elif excess <= 0:
        rest = "and at no step above its bound"
    else:
        rest = f"and above its bound by at most {excess:.0e}" + (", which is rounding" if excess <= _ROUNDING else "")
    return f"The paper's largest value is at least {least:.6f} in every layer after {OBSERVED} steps, {rest}."


def draw(layers: list[LayerConvergence], name: str) -> bytes:
    """Plot the paper's iteration, lotnet's schedule, and the paper's bound as a PNG. One color per layer."""
    picture = figure(WIDTH, 6)
    (left, right), (below, beside) = picture.subplots(2, 2)
    put_title(picture, name)
    every = -(-len(layers) // _NAMED)
    for number, (layer, color) in enumerate(zip(layers, shades(len(layers)), strict=True)):
        label = f"layer {number + 1}: {' x '.join(map(str, layer.shape))}" if number % every == 0 else None
        for axes, steps in ((left, layer.paper), (right, layer.ours)):
            axes.plot(steps.largest, color=color, linewidth=1.2, marker=".")
            axes.plot(steps.smallest, color=color, linewidth=1.2, linestyle=":")
        excess = [math.nan if bound is None else bound - 1 for bound in layer.bound]
        below.plot(excess, color=color, linewidth=1.2, linestyle="--")
        beside.plot([], [], color=color, linewidth=3, label=label)
    for style, label in (("-", "largest singular value"), (":", "smallest"), ("--", "bound of the largest")):
        beside.plot([], [], color="#333333", linewidth=1.2, linestyle=style, label=label)
    beside.legend(frameon=False, fontsize=SMALL, loc="center", title="matrices of each layer", title_fontsize=SMALL)
    beside.axis("off")
    left.set_title("the paper's Newton iteration", fontsize=SMALL + 1)
    right.set_title("lotnet's schedule", fontsize=SMALL + 1)
    below.set_title("the paper's bound", fontsize=SMALL + 1)
    left.set_ylabel("singular value")
    below.set_ylabel("bound minus one")
    below.set_yscale("log", nonpositive="mask")  # rounding can make the excess zero
    for axes in (left, right):
        axes.axhline(1, color="grey", linewidth=0.6)
        axes.set(ylim=(-0.05, 2.05), yticks=(0, 0.5, 1, 1.5, 2))
    for axes in (left, right, below):
        axes.set_xlabel("step")
        axes.set_xticks(range(0, len(axes.lines[0].get_xdata()), 2))
        plain_axes(axes)
    return png(picture)
