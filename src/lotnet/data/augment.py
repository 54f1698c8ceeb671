"""The kinds of augmentation, and the affine and colour changes of `strong`.

To add a kind, add it to `KINDS`. Invariants of `distort`:

* the change of sample n depends only on the key and n. Only its last bits depend on the size of the batch, because
  PyTorch rounds differently for different sizes;
* about half of the images stay as they are, bit for bit;
* pixels stay in [0, 1].
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.data.counter_rng import randint
from lotnet.data.dataset import Augmentation

AugmentationKind = Literal["none", "standard", "strong", "randaugment"]
KINDS: dict[AugmentationKind, Callable[[Augmentation], Augmentation]] = {
    "none": lambda usual: Augmentation(padding=0, flip=False),
    "standard": lambda usual: usual,
    "strong": lambda usual: replace(usual, distort=True),
    "randaugment": lambda usual: replace(usual, randaugment=True),
}
"""The augmentation of each kind, given the usual one of the data set."""

_ROTATION = math.radians(15)
_SHEAR = 0.15
_SCALE = 0.15  # in powers of two
_COLOR = 0.3
_CHOICE, *_AMOUNTS = range(7)


def choose_augmentation(
    usual: Augmentation, kind: AugmentationKind, flip: bool | None = None, crop: int | None = None
) -> Augmentation:
    """The augmentation of this kind for a data set, with mirroring and cropping replaced by `flip` and `crop`."""
    chosen = KINDS[kind](usual)
    return replace(
        chosen,
        flip=chosen.flip if flip is None else flip,
        padding=chosen.padding if crop is None else crop,
    )


def describe(augmentation: Augmentation) -> str:
    """The augmentation in words."""
    parts = ["mirroring"] if augmentation.flip else []
    if augmentation.padding:
        parts.append(f"shifts by up to {augmentation.padding} pixel{'s' if augmentation.padding > 1 else ''}")
    if augmentation.distort:
        parts.append("rotation, shear, zoom and colour of every second image")
    if augmentation.randaugment:
        parts.append("RandAugment of every second image")
    return ", ".join(parts) or "none"


def distort(images: Tensor, samples: Tensor, *key: int) -> Tensor:  # b c h w, b
    """Change a random half of the images (pixels in [0, 1]): an affine map, then colour jitter.

    The affine map rotates by up to 15 degrees, shears by up to 0.15 and scales by up to 2^0.15, about the centre of the
    image. Pixels from outside of the image are zero. Brightness, contrast and saturation change by up to 30 %.
    """
    if not len(images):  # the last batch may have no images for this process
        return images
    rotation, shear, scale, *factors = (_signed(samples, images.dtype, *key, tag) for tag in _AMOUNTS)
    moved = _affine(images, _ROTATION * rotation, _SHEAR * shear, 2 ** (_SCALE * scale))
    changed = _color_jitter(moved, *(1 + _COLOR * factor for factor in factors))
    chosen = randint(2, samples, *key, _CHOICE) == 1
    return torch.where(chosen[:, None, None, None], changed.clamp(0, 1), images)


def _signed(samples: Tensor, dtype: torch.dtype, *key: int) -> Tensor:
    """Uniform numbers in [-1, 1): multiples of 2^-23, which are exact in float32 and rounded in half precision."""
    return (randint(2**24, samples, *key).float() / 2**23 - 1).to(dtype)


def _affine(images: Tensor, rotation: Tensor, shear: Tensor, scale: Tensor) -> Tensor:
    zero, cos, sin = torch.zeros_like(rotation), rotation.cos(), rotation.sin()
    rows = (torch.stack((cos, shear - sin, zero), dim=1), torch.stack((sin, cos, zero), dim=1))
    places = F.affine_grid(torch.stack(rows, dim=1) / scale[:, None, None], list(images.shape), align_corners=False)
    return F.grid_sample(images, places, mode="bilinear", padding_mode="zeros", align_corners=False)


def _color_jitter(images: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor) -> Tensor:
    brightness, contrast, saturation = (f[:, None, None, None] for f in (brightness, contrast, saturation))
    images = brightness * images
    gray = images.mean(dim=(1, 2, 3), keepdim=True)
    images = gray + contrast * (images - gray)
    gray = images.mean(dim=1, keepdim=True)
    return gray + saturation * (images - gray)
