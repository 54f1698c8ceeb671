"""RandAugment (Cubuk et al., 2020): two random operations of fourteen on a random half of the images, on the device.

Operations and magnitudes are those of the recipes behind the best published certified accuracy: magnitude 9 of 30,
operations drawn uniformly, most of them with a random sign.

Invariants:

* the operations on sample n depend only on the key and n;
* images stay uint8. All arithmetic is on integers, or is rounded in the same way everywhere. So the result is the same
  bit for bit in any batch and on any device;
* each operation returns the pixels that Pillow returns.

A batch holds all operations at once, so every image passes through three stages: pixels move, pixels are mixed with a
simpler image, levels are looked up in a table. A stage changes nothing in the images whose operation is of another
kind.
"""

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.data.counter_rng import randint

OPERATIONS = (
    "identity",
    "shear x",
    "shear y",
    "translate x",
    "translate y",
    "rotate",
    "brightness",
    "color",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "auto contrast",
    "equalize",
)
"""The operations. Those from shear to sharpness have a sign."""

_ROUNDS = 2
_MAGNITUDE = 9 / 30
_SHEAR = 0.3 * _MAGNITUDE
_SHIFT = 150 / 331 * _MAGNITUDE  # of the side
_DEGREES = 30 * _MAGNITUDE
_MIX = 0.9 * _MAGNITUDE
_BITS = 8 - round(4 * _MAGNITUDE)
_THRESHOLD = 255 * (1 - _MAGNITUDE)
_CHOICE, _OPERATION, _SIGN = range(3)


def rand_augment(images: Tensor, samples: Tensor, *key: int) -> Tensor:  # b c h w, uint8
    """Apply two random operations to a random half of the images."""
    chosen = randint(2, samples, *key, _CHOICE) == 1
    for turn in range(_ROUNDS):
        operation = randint(len(OPERATIONS), samples, *key, _OPERATION, turn)
        sign = 2 * randint(2, samples, *key, _SIGN, turn) - 1
        images = apply_operations(images, torch.where(chosen, operation, 0), sign)
    return images


def apply_operations(images: Tensor, operation: Tensor, sign: Tensor) -> Tensor:  # b c h w, b, b
    """Apply to each image the operation with its index in `OPERATIONS`, with the sign 1 or -1."""
    if not len(images):  # the last batch may have no images for this process
        return images
    return _look_up(_mix(_move(images, operation, sign), operation, sign), operation)


def _is(name: str, operation: Tensor) -> Tensor:
    """Which images have this operation, as b 1 1 1."""
    return (operation == OPERATIONS.index(name))[:, None, None, None]


def _move(images: Tensor, operation: Tensor, sign: Tensor) -> Tensor:
    """Shear, translate and rotate: each pixel is copied from another place, or is black."""
    b, c, h, w = images.shape
    source = _sources(h, w, images.device)[2 * operation + (sign + 1) // 2]
    black_at_the_end = F.pad(images.flatten(2), (0, 1))
    return black_at_the_end.gather(2, source[:, None].expand(b, c, h * w)).view(images.shape)


@lru_cache(maxsize=16)
def _sources(height: int, width: int, device: torch.device) -> Tensor:  # operations and signs, h w
    """Where each pixel comes from, for each operation with the sign -1, then 1; `height * width` stands for black."""
    with torch.inference_mode(False):
        places = [_source(_matrix(name, s, height, width), height, width) for name in OPERATIONS for s in (-1, 1)]
        return torch.stack(places).to(device)


def _matrix(name: str, sign: int, height: int, width: int) -> tuple[float, ...]:
    """The affine map (a, b, c, d, e, f) from a pixel (x, y) to its source (a x + b y + c, d x + e y + f)."""
    turn = -math.radians(sign * _DEGREES)
    cos, sin, x, y = round(math.cos(turn), 15), round(math.sin(turn), 15), width / 2, height / 2  # as Pillow rounds
    maps = {
        "shear x": (1.0, sign * _SHEAR, 0.0, 0.0, 1.0, 0.0),
        "shear y": (1.0, 0.0, 0.0, sign * _SHEAR, 1.0, 0.0),
        "translate x": (1.0, 0.0, float(sign * int(_SHIFT * width)), 0.0, 1.0, 0.0),
        "translate y": (1.0, 0.0, 0.0, 0.0, 1.0, float(sign * int(_SHIFT * height))),
        "rotate": (cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y),
    }
    return maps.get(name, (1.0, 0.0, 0.0, 0.0, 1.0, 0.0))


def _source(matrix: tuple[float, ...], height: int, width: int) -> Tensor:  # h w
    """The nearest source of each pixel's centre, in the fixed-point arithmetic of Pillow."""

    def fixed(value: float) -> int:
        return math.floor(value * 2**16 + 0.5)

    a, b, c, d, e, f = matrix
    x, y = torch.arange(width), torch.arange(height)[:, None]
    column = (fixed(c + a * 0.5 + b * 0.5) + fixed(a) * x + fixed(b) * y) >> 16
    row = (fixed(f + d * 0.5 + e * 0.5) + fixed(d) * x + fixed(e) * y) >> 16
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    return torch.where(inside, row * width + column, height * width).flatten()


def _mix(images: Tensor, operation: Tensor, sign: Tensor) -> Tensor:
    """Brightness, color, contrast and sharpness: `image + (factor - 1) (image - simpler)`, cut off at 0 and 255.

    The simpler image is black, grey, the mean of the grey one, or smooth.
    """
    gray = _gray(images)
    simpler = torch.where(_is("color", operation), gray, 0)
    simpler = torch.where(_is("contrast", operation), _rounded_mean(gray), simpler)
    simpler = torch.where(_is("sharpness", operation), _smooth(images), simpler).float()
    mixes = _is("brightness", operation) | _is("color", operation)
    mixes = mixes | _is("contrast", operation) | _is("sharpness", operation)
    factor = 1 + torch.where(mixes, _MIX * sign.float()[:, None, None, None], 0)
    # A product and a sum, each rounded once, as in Pillow. `lerp` would round otherwise on some devices.
    return (simpler + factor * (images - simpler)).clamp(0, 255).to(torch.uint8)


def _gray(images: Tensor) -> Tensor:  # b c h w -> b 1 h w, int32
    """Luma with the weights of Pillow; a single channel as it is."""
    if images.shape[1] != 3:
        return images[:, :1].int()
    red, green, blue = images.int().split(1, dim=1)
    return (19595 * red + 38470 * green + 7471 * blue + 2**15) >> 16


def _rounded_mean(gray: Tensor) -> Tensor:  # b 1 h w -> b 1 1 1
    pixels = gray[0].numel()
    return ((2 * gray.sum(dim=(2, 3), keepdim=True) + pixels) // (2 * pixels)).int()


def _smooth(images: Tensor) -> Tensor:  # b c h w, int32
    """Each pixel weighed with its eight neighbours, 5 to 1 each; the border stays as it is."""
    same = images.int()
    if min(images.shape[2:]) < 3:
        return same
    sums = F.avg_pool2d(images.float(), 3, stride=1, divisor_override=1).int() + 4 * same[..., 1:-1, 1:-1]
    smooth = same.clone()
    smooth[..., 1:-1, 1:-1] = (2 * sums + 13) // 26
    return smooth


def _look_up(images: Tensor, operation: Tensor) -> Tensor:
    """Posterize, solarize, auto contrast and equalize: a new level for each level, by image and channel."""
    flat = images.flatten(2).long()
    levels = torch.arange(256, device=images.device)
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, flat, torch.ones_like(flat))
    table = levels.expand(counts.shape)
    tables = {
        "posterize": levels & ~(2 ** (8 - _BITS) - 1),
        "solarize": torch.where(levels < _THRESHOLD, levels, 255 - levels),
        "auto contrast": _stretched(counts, levels),
        "equalize": _equalized(counts, levels),
    }
    for name, other in tables.items():
        table = torch.where(_is(name, operation)[..., 0], other, table)
    return table.gather(2, flat).to(torch.uint8).view(images.shape)


def _stretched(counts: Tensor, levels: Tensor) -> Tensor:  # b c 256
    """A line through the lowest and the highest level that occur, to 0 and 255."""
    low = torch.where(counts > 0, levels, 256).amin(dim=2, keepdim=True)
    high = torch.where(counts > 0, levels, -1).amax(dim=2, keepdim=True)
    span = (high - low).clamp_min(1).double()
    scale = torch.full_like(span, 255) / span  # a number divided by a tensor would be rounded twice
    line = (levels * scale + -low * scale).clamp(0, 255).long()
    return torch.where(high > low, line, levels)


def _equalized(counts: Tensor, levels: Tensor) -> Tensor:  # b c 256
    """Levels in proportion to the number of darker pixels."""
    high = torch.where(counts > 0, levels, -1).amax(dim=2, keepdim=True)
    step = (counts.sum(dim=2, keepdim=True) - counts.gather(2, high)) // 255
    darker = counts.cumsum(dim=2) - counts
    even = ((step // 2 + darker) // step.clamp_min(1)).clamp_max(255)
    return torch.where(step > 0, even, levels)
