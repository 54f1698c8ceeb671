"""Stronger changes than crops and mirroring, for long trainings of large networks: shape and colour.

Invariants:

* what happens to sample n depends only on the key and n, as all randomness of a batch does, up to rounding: how many
  images are changed together moves the last bits;
* about every second image is left as it is, bit for bit; pixels stay in [0, 1].
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.data.counter_rng import below

_TURN = math.radians(15)
_SHEAR = 0.15
_ZOOM = 0.15  # in powers of two
_COLOUR = 0.3
_CHOICE, *_AMOUNTS = range(7)


def distorted(images: Tensor, samples: Tensor, *key: int) -> Tensor:  # b c h w, b
    """Every second image turned by up to 15 degrees, sheared and zoomed by up to a seventh or so about its middle, with
    zeros where nothing was, then its brightness, contrast and colourfulness changed by up to 30 %."""
    if not len(images):  # a process may have no share of the last batch
        return images
    turn, shear, zoom, *factors = (_signed(samples, images.dtype, *key, tag) for tag in _AMOUNTS)
    moved = _colour(
        _move(images, _TURN * turn, _SHEAR * shear, 2 ** (_ZOOM * zoom)), *(1 + _COLOUR * f for f in factors)
    )
    chosen = below(2, samples, *key, _CHOICE) == 1
    return torch.where(chosen[:, None, None, None], moved.clamp(0, 1), images)


def _signed(samples: Tensor, dtype: torch.dtype, *key: int) -> Tensor:
    """Numbers in [-1, 1): multiples of 2^-23, which float32 has and half precisions round."""
    return (below(2**24, samples, *key).float() / 2**23 - 1).to(dtype)


def _move(images: Tensor, turn: Tensor, shear: Tensor, zoom: Tensor) -> Tensor:
    zero, cos, sin = torch.zeros_like(turn), turn.cos(), turn.sin()
    rows = (torch.stack((cos, shear - sin, zero), dim=1), torch.stack((sin, cos, zero), dim=1))
    places = F.affine_grid(torch.stack(rows, dim=1) / zoom[:, None, None], list(images.shape), align_corners=False)
    return F.grid_sample(images, places, mode="bilinear", padding_mode="zeros", align_corners=False)


def _colour(images: Tensor, brightness: Tensor, contrast: Tensor, colourfulness: Tensor) -> Tensor:
    brightness, contrast, colourfulness = (f[:, None, None, None] for f in (brightness, contrast, colourfulness))
    images = brightness * images
    grey = images.mean(dim=(1, 2, 3), keepdim=True)
    images = grey + contrast * (images - grey)
    grey = images.mean(dim=1, keepdim=True)
    return grey + colourfulness * (images - grey)
