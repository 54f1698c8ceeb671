"""Grouped, dilated, transposed and 1-D layers: their time beside plain LOT, PyTorch and orthogonium, in one run.

`benchmarks/layers.py --variants` prints the table. A training step is one forward and one backward pass in a block of
`lotnet.orthogonalized`; evaluation is the frozen layer. Every layer runs once in each round, so that a busy moment
affects all alike. Ratios are medians of the ratios of each round.

Two columns compare with plain LOT. `same operations` is plain layers that do exactly the same multiplications: for g
groups, g layers with the channels of one group, one after another; for a dilation by d, a layer on d^2 times as many
images of a d-th of the side. `as many` is one plain layer on the same images, whose number of channels makes its number
of multiplications nearest to the variant's; the ratio is corrected for what is left of the difference. Counted are the
transforms, the products with a matrix for each frequency and, in training, the polar factors. A larger matrix takes
less time for each multiplication, so `as many` is the stricter comparison.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn

import lotnet
from lotnet import OrthogonalConv1d, OrthogonalConv2d, OrthogonalConvTranspose2d, freeze

POLAR_PRODUCTS = 40
"""Products of a matrix's size that its polar factor counts for: about as many as the iteration and its gradient do."""


@dataclass(frozen=True)
class Workload:
    channels: int
    side: int
    batch: int
    device: str

    def images(self, channels: int, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(self.batch, channels, *shape, device=self.device)


@dataclass(frozen=True)
class Variant:
    """One kind of layer, in each library that has it; each function takes the number of channels."""

    ours: Callable[[int], nn.Module]
    pytorch: Callable[[int], nn.Module]
    orthogonium: Callable[[int], nn.Module] | None = None
    axes: int = 2


def _aoc(channels: int, **sizes: int) -> nn.Module:
    from orthogonium.layers import AdaptiveOrthoConv2d

    return AdaptiveOrthoConv2d(channels, channels, 3, padding="same", padding_mode="zeros", **sizes)


def _aoc_transposed(channels: int) -> nn.Module:
    from orthogonium.layers import AdaptiveOrthoConvTranspose2d

    return AdaptiveOrthoConvTranspose2d(channels, channels // 2, 4, stride=2, padding=1)


VARIANTS = {
    "plain": Variant(lambda c: OrthogonalConv2d(c, c, 3), lambda c: nn.Conv2d(c, c, 3, padding=1), _aoc),
    "grouped, 4 groups": Variant(
        lambda c: OrthogonalConv2d(c, c, 3, groups=4),
        lambda c: nn.Conv2d(c, c, 3, padding=1, groups=4),
        partial(_aoc, groups=4),
    ),
    "grouped, 16 groups": Variant(
        lambda c: OrthogonalConv2d(c, c, 3, groups=16),
        lambda c: nn.Conv2d(c, c, 3, padding=1, groups=16),
        partial(_aoc, groups=16),
    ),
    "dilated, by 2": Variant(
        lambda c: OrthogonalConv2d(c, c, 3, dilation=2),
        lambda c: nn.Conv2d(c, c, 3, padding=2, dilation=2),
        partial(_aoc, dilation=2),
    ),
    "transposed, stride 2": Variant(
        lambda c: OrthogonalConvTranspose2d(c, c // 2, 3, stride=2),
        lambda c: nn.ConvTranspose2d(c, c // 2, 4, stride=2, padding=1),
        _aoc_transposed,
    ),
    "1-D": Variant(lambda c: OrthogonalConv1d(c, c, 3), lambda c: nn.Conv1d(c, c, 3, padding=1), axes=1),
}
COUNTED = ("grouped, 4 groups", "grouped, 16 groups", "dilated, by 2")
"""Variants that are compared with plain layers of as many multiplications."""


def multiplications(layer: OrthogonalConv2d, side: int, batch: int, training: bool) -> int:
    """Of one call of the layer on `batch` images."""
    geometry = layer.geometry(side, side)
    grid, phases = geometry.grid, math.prod(layer.dilation)
    h, w, o, i, groups = geometry.height, geometry.width, geometry.out_channels, geometry.in_channels, geometry.groups
    transform = 2 * grid.half * h * w + 4 * grid.half * grid.columns * w
    transforms = transform * (i + o) * groups * phases * batch
    products = 4 * grid.frequencies * o * i * groups * phases * batch
    if not training:
        return transforms + products
    return 2 * transforms + 3 * products + POLAR_PRODUCTS * 4 * grid.frequencies * groups * min(o, i) * o * i


def plain_of_equal_work(layer: OrthogonalConv2d, work: Workload, training: bool) -> tuple[OrthogonalConv2d, float]:
    """The plain layer nearest in multiplications, and the variant's number divided by its own."""
    wanted = multiplications(layer, work.side, work.batch, training)
    layers = (OrthogonalConv2d(c, c, 3) for c in range(2, 2 * work.channels))
    counted = ((found, wanted / multiplications(found, work.side, work.batch, training)) for found in layers)
    return min(counted, key=lambda pair: abs(math.log(pair[1])))


class _SideBySide(nn.Module):
    """Plain layers, each on its own channels of the images."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        parts = zip(self.layers, x.chunk(len(self.layers), dim=1), strict=True)
        return torch.cat([layer(part) for layer, part in parts], dim=1)


def plain_of_same_work(layer: OrthogonalConv2d, work: Workload, training: bool) -> tuple[nn.Module, Workload]:
    """Plain layers with exactly the multiplications of the variant, and their images."""
    d, c = layer.dilation[0], work.channels // layer.groups
    work = replace(work, side=work.side // d, batch=work.batch * d * d)
    layers = [_random(OrthogonalConv2d(c, c, 3)) for _ in range(layer.groups)]
    if not training:
        layers = [freeze(nn.Sequential(plain), (c, work.side, work.side)) for plain in layers]
    return (layers[0] if layer.groups == 1 else _SideBySide(layers)), work


def _random(layer: nn.Module) -> nn.Module:
    """Make every kernel random: some layers start at the identity, which is too easy a case."""
    for parameter in layer.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return layer


def training_step(layer: nn.Module, work: Workload, channels: int, shape: tuple[int, ...]) -> Callable[[], None]:
    network = nn.Sequential(layer).to(work.device).train()
    x = work.images(channels, shape).requires_grad_()
    gradient = torch.randn_like(network(x))

    def step() -> None:
        x.grad = None
        network.zero_grad(set_to_none=True)
        with lotnet.orthogonalized(network):
            network(x).backward(gradient)

    return step


def evaluation(layer: nn.Module, work: Workload, channels: int, shape: tuple[int, ...]) -> Callable[[], None]:
    ours = isinstance(layer, OrthogonalConv1d | OrthogonalConv2d | OrthogonalConvTranspose2d)
    network = freeze(nn.Sequential(layer), (channels, *shape)) if ours else layer.eval()
    network, x = network.to(work.device), work.images(channels, shape)

    def step() -> None:
        with torch.no_grad():
            network(x)

    return step


def measure(variant: str, work: Workload, training: bool, rounds: int) -> dict[str, float]:
    """Milliseconds of our layer, and its time divided by the others'."""
    torch.manual_seed(0)
    kinds, c = VARIANTS[variant], work.channels
    shape = (work.side,) * 2 if kinds.axes == 2 else (work.side**2,)
    make = training_step if training else evaluation
    layer = _random(kinds.ours(c))
    steps = {"lotnet": make(layer, work, c, shape), "PyTorch": make(kinds.pytorch(c), work, c, shape)}
    if kinds.orthogonium is not None and find_spec("orthogonium"):
        steps["orthogonium"] = make(kinds.orthogonium(c), work, c, shape)
    share = 1.0
    if variant in COUNTED:
        plain, share = plain_of_equal_work(layer, work, training)
        steps["as many"] = make(_random(plain), work, plain.in_channels, shape)
        same, images = plain_of_same_work(layer, work, training)
        steps["same operations"] = make(same, images, c, (images.side, images.side))
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for lap in range(rounds + 2):
        for name, step in steps.items():
            taken = _timed(step, work.device)
            if lap >= 2:  # the first laps warm up
                seconds[name].append(taken)
    ratios = {"as many": share}
    others = [name for name in steps if name != "lotnet"]
    found = {
        name: statistics.median(a / b for a, b in zip(seconds["lotnet"], seconds[name], strict=True))
        / ratios.get(name, 1.0)
        for name in others
    }
    return {"ms": 1000 * statistics.median(seconds["lotnet"])} | found


COLUMNS = ("same operations", "as many", "PyTorch", "orthogonium")


def _timed(step: Callable[[], None], device: str) -> float:
    """Seconds of one step; on a CPU of processor time, which leaves out what other programs take."""
    if device == "cpu":
        start = time.process_time()
        step()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 10


Measured = dict[tuple[str, bool], dict[str, float]]
"""What `measure` returns, for each variant in training and in evaluation."""


def table(work: Workload, found: Measured) -> str:
    lines = [
        f"## Variants: {work.channels} channels, {work.side} x {work.side}, batch {work.batch}, {work.device}",
        "",
        "LOT's time, and that time divided by the other layers'. 1-D sequences have as many entries as the images.",
        "`same operations` is plain LOT layers that do exactly the same multiplications: for g groups, g layers with",
        "the channels of one group; for a dilation by 2, a layer on four times as many images of half the side.",
        "`as many` is one plain LOT layer with so many channels that it does as many multiplications. Its matrices are",
        "larger, and larger matrices take less time for each multiplication, so that ratio is the stricter one.",
        "orthogonium computes its kernel anew in each evaluation; a plain convolution with it takes PyTorch's time.",
        "",
        "| layer | pass | milliseconds | / same operations | / as many | / PyTorch | / orthogonium |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for (variant, training), ratios in found.items():
        cells = [f"{ratios[name]:.2f}" if name in ratios else "-" for name in COLUMNS]
        name = "training step" if training else "evaluation"
        lines.append(f"| {variant} | {name} | {ratios['ms']:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)
