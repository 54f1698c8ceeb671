"""What a hidden neuron looks for: an image that makes it large, climbed to from noise.

The paper's ascent, with step size 1 and decay 0.1 for 500 steps, in the coordinates that the first layer sees:

    x <- x + step (gradient of the neuron at x - decay x).

The paper does not say what decays; read as a pull of the image towards the mean, it gives the ascent an end: where the
gradient is ten times smaller than the image. A neuron of a 1-Lipschitz network has a gradient of norm at most one, so
the image stays within ten units, a faint one, and pictures stretch its contrast.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lotnet.analysis.plotting import figure, heading, png
from lotnet.errors import InputError

STEPS = 500
STEP = 1.0
DECAY = 0.1


@dataclass(frozen=True, eq=False)
class Features:
    """Neurons of one layer, and the image that each was climbed to."""

    layer: int
    neurons: tuple[int, ...]
    """Places in the flattened output of the layer."""
    before: tuple[float, ...]
    """Value for each unit of norm at the noise it started from ..."""
    after: tuple[float, ...]
    """... and at the image, which is far smaller than the noise: the value itself need not rise."""
    images: Tensor  # n c h w, as the first layer sees them: zero is the mean colour


def hidden_layer(model: nn.Sequential, layer: int | None) -> int:
    """A place in the model, as `lotnet train --print-model` counts; the last one before the logits by default.

    Flattening is no layer of neurons of its own.
    """
    names = [n for n, stage in enumerate(model) if 0 < n < len(model) - 1 and not isinstance(stage, nn.Flatten)]
    if layer is None:
        return names[-1]
    if layer not in names:
        raise InputError(f"there is no hidden layer {layer}: choose one from {names[0]} to {names[-1]}")
    return layer


def choose_neurons(total: int, wanted: list[int] | None, count: int, seed: int) -> list[int]:
    """The neurons wanted, or `count` at random out of `total`."""
    if wanted is not None:
        for neuron in wanted:
            if not 0 <= neuron < total:
                raise InputError(f"there is no neuron {neuron} in a layer of {total}: choose from 0 to {total - 1}")
        return wanted
    if not 1 <= count <= total:
        raise InputError(f"cannot choose {count} of {total} neurons: give a count from 1 to {total}")
    return torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count].sort().values.tolist()


def neurons_of(model: nn.Sequential, layer: int, shape: tuple[int, int, int]) -> int:
    """Numbers in the output of a layer, for images of this shape."""
    with torch.no_grad():
        return model[1 : layer + 1](next(model.parameters()).new_zeros(1, *shape)).numel()


def check(steps: int, step: float, decay: float) -> None:
    """Whether the ascent goes anywhere and ends."""
    if steps < 1:
        raise InputError(f"steps must be at least 1, not {steps}")
    if not step > 0:
        raise InputError(f"the step is {step}: give a positive one")
    if not 0 <= decay * step < 2:
        raise InputError(
            f"a decay of {decay} with steps of {step} ends nowhere: their product must be from 0 to below 2"
        )


def maximise(
    model: nn.Sequential,
    layer: int,
    neurons: list[int],
    shape: tuple[int, int, int],
    *,
    steps: int = STEPS,
    step: float = STEP,
    decay: float = DECAY,
    seed: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> Features:
    """Climb from standard normal noise to an image for each neuron, all at once. The model is in `eval()` mode."""
    part, weight = model[1 : layer + 1], next(model.parameters())  # without Normalize: in the coordinates it makes
    x = torch.randn(len(neurons), *shape, generator=torch.Generator().manual_seed(seed)).to(weight)
    places = torch.tensor(neurons, device=weight.device)[:, None]

    def values(x: Tensor) -> Tensor:
        return part(x).flatten(1).gather(1, places).squeeze(1)

    @torch.no_grad()
    def response(x: Tensor) -> tuple[float, ...]:
        return tuple((values(x) / x.flatten(1).norm(dim=1)).tolist())

    before = response(x)
    for _ in range(steps):
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(values(x).sum(), x)
        x = (x + step * (gradient - decay * x)).detach()
        progress()
    after = response(x)
    if not bool(x.isfinite().all()) or not all(map(math.isfinite, after)):
        raise InputError(f"the ascent left the range of numbers in {steps} steps of {step}: give a smaller --step")
    return Features(layer, tuple(neurons), before, after, x.cpu())


def draw(found: dict[str, Features], columns: int = 4) -> bytes:
    """The images as a PNG, a block for each network, `columns` in a row; the contrast of each image is its own."""
    blocks = {name: features.images for name, features in found.items()}
    rows = -(-max(len(images) for images in blocks.values()) // columns)
    picture = figure(0.95 * columns * len(blocks) + 0.3 * len(blocks), 0.95 * rows + 0.5)
    for part, (name, images) in zip(picture.subfigures(1, len(blocks), squeeze=False)[0], blocks.items(), strict=True):
        part.suptitle(heading(name, 48), fontsize=9)
        places = part.subplots(rows, columns, squeeze=False).flatten()
        for place in places:
            place.axis("off")
        for place, image, neuron in zip(places, images, found[name].neurons, strict=False):
            place.imshow(_pixels(image).numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            place.set_title(str(neuron), fontsize=6, pad=2)
    return png(picture)


def _pixels(image: Tensor) -> Tensor:  # c h w -> h w c, or h w for one channel
    """Around mid-grey, the largest entry at the end of the scale."""
    stretched = 0.5 + 0.5 * image / image.abs().max().clamp_min(1e-12)
    return stretched[0] if len(image) == 1 else stretched.permute(1, 2, 0)
