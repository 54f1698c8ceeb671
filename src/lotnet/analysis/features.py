"""Activation maximization: images that hidden neurons respond to, by gradient ascent from noise.

The ascent is the paper's: 500 steps of size 1 with decay 0.1, on images as the first layer sees them:

    x <- x + step_size (gradient of the neuron at x - decay x).

The paper does not say what decays. Here it is the image, which is pulled towards the mean color. The ascent then
converges to a point where the image is ten times its gradient. A neuron of a 1-Lipschitz network has a gradient of norm
at most one, so the image has norm at most ten. That is faint, so plots stretch the contrast.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.console import Console
from torch import Tensor, nn

from lotnet.analysis.files import AnalysisFiles
from lotnet.analysis.networks import Network
from lotnet.analysis.plotting import SMALL, WIDTH, figure, heading, png, put_title
from lotnet.errors import InputError
from lotnet.progress import progress_bar

CAPTION = (
    "Each image is what one neuron, whose number stands above it, responds to most: look for strokes and shapes, as "
    "opposed to noise. Every image has its own contrast."
)


@dataclass(frozen=True)
class AscentSettings:
    """Settings of the gradient ascent, by default the paper's."""

    steps: int = 500
    step_size: float = 1.0
    decay: float = 0.1
    """Pull towards the mean color."""
    seed: int = 0
    """Seed of the noise that the ascent starts from."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps must be at least 1, not {self.steps}")
        if not self.step_size > 0:
            raise InputError(f"the step is {self.step_size}: give a positive one")
        if not 0 <= self.decay * self.step_size < 2:
            raise InputError(
                f"a decay of {self.decay} with steps of {self.step_size} does not converge: "
                "their product must be from 0 to below 2"
            )


@dataclass(frozen=True)
class NeuronChoice:
    """Which neurons of each network are maximized."""

    layer: int | None = None
    """Index of a hidden layer, as `lotnet train --print-model` counts; by default the last one."""
    neurons: list[int] | None = None
    """Indices into the flattened output of the layer; by default random ones."""
    count: int = 16
    """Number of random neurons."""
    seed: int = 0

    def of(self, network: Network) -> tuple[int, list[int]]:
        """The layer, and the neurons in it."""
        layer = hidden_layer(network.model, self.layer)
        total = count_neurons(network.model, layer, network.shape)
        return layer, choose_neurons(total, self.neurons, self.count, self.seed)


@dataclass(frozen=True, eq=False)
class Features:
    """Neurons of one layer, and the image that the ascent found for each."""

    layer: int
    neurons: tuple[int, ...]
    """Indices into the flattened output of the layer."""
    before: tuple[float, ...]
    """The neuron's value over the norm of its input, at the noise that the ascent starts from."""
    after: tuple[float, ...]
    """The same at the image. Its norm is far smaller than that of the noise, so the value itself need not rise."""
    images: Tensor  # n c h w, as the first layer sees them: zero is the mean color


def analyze(
    networks: list[Network], choice: NeuronChoice, ascent: AscentSettings, console: Console
) -> dict[str, Features]:
    """Find images for the chosen neurons of each network, by name."""
    chosen = [choice.of(network) for network in networks]  # first: wrong choices are refused before the ascent
    found = {}
    with progress_bar(console) as progress:
        task = progress.add_task("gradient ascent", total=len(networks) * ascent.steps)
        for network, (layer, neurons) in zip(networks, chosen, strict=True):
            found[network.name] = maximize_neurons(
                network.model, layer, neurons, network.shape, ascent, lambda: progress.update(task, advance=1)
            )
    return found


def files(networks: list[Network], ascent: AscentSettings, found: dict[str, Features]) -> AnalysisFiles:
    names = ("layer", "neurons", "before", "after")
    content = {
        "steps": ascent.steps,
        "step": ascent.step_size,
        "decay": ascent.decay,
        "seed": ascent.seed,
        "networks": [
            {"run": network.source, "name": network.name} | {key: getattr(found[network.name], key) for key in names}
            for network in networks
        ],
    }
    images = {f"images.{n}": features.images for n, features in enumerate(found.values())}
    return AnalysisFiles("features", content, lambda: draw(found, networks[0].common), CAPTION, images)


def hidden_layer(model: nn.Sequential, layer: int | None) -> int:
    """Check the index of a hidden layer, as `lotnet train --print-model` counts; by default the last one.

    Neither the normalization, nor the layer that computes the logits, nor flattening counts as a hidden layer.
    """
    names = [n for n, stage in enumerate(model) if 0 < n < len(model) - 1 and not isinstance(stage, nn.Flatten)]
    if layer is None:
        return names[-1]
    if layer not in names:
        raise InputError(f"there is no hidden layer {layer}: choose one from {names[0]} to {names[-1]}")
    return layer


def choose_neurons(total: int, wanted: list[int] | None, count: int, seed: int) -> list[int]:
    """Return the neurons in `wanted`, or by default `count` of `total` neurons at random."""
    if wanted is not None:
        for neuron in wanted:
            if not 0 <= neuron < total:
                raise InputError(f"there is no neuron {neuron} in a layer of {total}: choose from 0 to {total - 1}")
        return wanted
    if not 1 <= count <= total:
        raise InputError(f"cannot choose {count} of {total} neurons: give a count from 1 to {total}")
    return sorted(torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count].tolist())


def count_neurons(model: nn.Sequential, layer: int, shape: tuple[int, int, int]) -> int:
    """Number of entries in the output of a layer, for images of this shape."""
    with torch.no_grad():
        return int(model[1 : layer + 1](next(model.parameters()).new_zeros(1, *shape)).numel())


def maximize_neurons(
    model: nn.Sequential,
    layer: int,
    neurons: list[int],
    shape: tuple[int, int, int],
    settings: AscentSettings | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Features:
    """Find an image for each neuron, all in one batch, from standard normal noise. The model is in `eval()` mode."""
    settings = settings or AscentSettings()
    part, weight = model[1 : layer + 1], next(model.parameters())  # without Normalize: on images as layer 1 sees them
    x = torch.randn(len(neurons), *shape, generator=torch.Generator().manual_seed(settings.seed)).to(weight)
    indices = torch.tensor(neurons, device=weight.device)[:, None]

    def values(x: Tensor) -> Tensor:
        outputs: Tensor = part(x)
        return outputs.flatten(1).gather(1, indices).squeeze(1)

    def response(x: Tensor) -> tuple[float, ...]:
        with torch.no_grad():
            return tuple((values(x) / x.flatten(1).norm(dim=1)).tolist())

    before = response(x)
    for _ in range(settings.steps):
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(values(x).sum(), x)
        x = (x + settings.step_size * (gradient - settings.decay * x)).detach()
        progress()
    after = response(x)
    if not bool(x.isfinite().all()) or not all(map(math.isfinite, after)):
        raise InputError(
            f"the ascent left the range of numbers in {settings.steps} steps of {settings.step_size}: "
            "give a smaller --step"
        )
    return Features(layer, tuple(neurons), before, after, x.cpu())


def draw(found: dict[str, Features], common: str) -> bytes:
    """Plot the images as a PNG, one block per network, two blocks side by side; each image has its own contrast."""
    across = min(len(found), 2)
    columns = 8 // across
    rows = -(-max(len(features.images) for features in found.values()) // columns)
    down = -(-len(found) // across)
    picture = figure(WIDTH, (0.98 * rows + 0.35) * down + 0.3)
    put_title(picture, common)
    parts = picture.subfigures(down, across, squeeze=False).flatten()
    for part, (name, features) in zip(parts, found.items(), strict=False):
        part.suptitle(heading(f"{name}: neurons of layer {features.layer}", 84 // across), fontsize=SMALL + 1)
        places = part.subplots(rows, columns, squeeze=False).flatten()
        for place in places:
            place.axis("off")
        for place, image, neuron in zip(places, features.images, features.neurons, strict=False):
            place.imshow(_pixels(image).numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            place.set_title(str(neuron), fontsize=SMALL, pad=2)
    return png(picture)


def _pixels(image: Tensor) -> Tensor:  # c h w -> h w c, or h w for one channel
    """Scale an image around mid-gray so that its largest entry is black or white."""
    stretched = 0.5 + 0.5 * image / image.abs().max().clamp_min(1e-12)
    return stretched[0] if len(image) == 1 else stretched.permute(1, 2, 0)
