"""Predictions and attacks for the demo page: the label and certified radius of an image, and an attack on it.

Invariants:

* both use the float64 program that claim B is about, for the certified radius and for the attack;
* exact arithmetic decides whether an attacked image lies within the radius;
* a grey image stays grey under attack, also where the model reads three channels;
* requests are answered one at a time, so memory holds the pixels of one image only.
"""

import io
import math
import threading
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from lotnet.attacks import PGDSettings, pgd_l2, squared_distance
from lotnet.certification.formatting import rounded_down
from lotnet.data import to_unit
from lotnet.data.pictures import levels, png_url
from lotnet.errors import InputError
from lotnet.frozen.model import FrozenModel
from lotnet.prediction import Picture, Prediction, predict, read_picture

LARGEST_SIZE = 100.0
"""Largest size of an attack. A larger attack would show nothing new."""

_STEPS = 20


class Answers:
    """Answers about one model. Methods may be called from several threads."""

    def __init__(self, model: FrozenModel) -> None:
        self._program = model.astype(torch.float64)
        self._turn = threading.Lock()

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self._program.input_shape

    def warm_up(self) -> None:
        """Prove the layers now, so that the first image does not wait for it."""
        predict(self._program, torch.zeros(1, *self.input_shape, dtype=torch.float64))

    def predict(self, content: bytes) -> dict[str, Any]:
        """Predict the image file `content`."""
        with self._turn:
            picture, image = self._read(content)
            (answer,) = predict(self._program, image)
        return {
            **_shown(answer),
            "meaning": answer.meaning,
            "changes": list(picture.changes),
            "scope": picture.scope(answer.radius),
            "grey": is_grey(image),
            "picture": png_url(levels(image[0])),
        }

    def attack(self, content: bytes, size: float) -> dict[str, Any]:
        """Find the image of smallest margin within the l2 distance `size`, by projected gradient descent (PGD)."""
        if not 0 <= size <= LARGEST_SIZE:  # NaN is neither
            raise InputError(f"the size of an attack is {size}: give a number from 0 to {LARGEST_SIZE:g}")
        with self._turn:
            _, image = self._read(content)
            (before,) = predict(self._program, image)
            attacked = self._attacked(image, before.index, size)
            (after,) = predict(self._program, attacked)
        distance = squared_distance(image[0], attacked[0])
        return {
            **_shown(after),
            "held": after.index == before.index,
            "proved": distance < Fraction(before.radius) ** 2,
            "distance": math.sqrt(distance),
            "picture": png_url(levels(attacked[0])),
            "change": png_url(levels(amplified(attacked[0] - image[0]))),
        }

    def _attacked(self, image: Tensor, label: int, size: float) -> Tensor:
        """Attack an image within an l2 distance. A grey image stays grey: all its channels change by the same."""
        device = next(iter(self._program.buffers())).device
        channels = image.shape[1] if is_grey(image) else 1  # that one channel of the attack stands for

        def logits(x: Tensor) -> Tensor:
            return self._program(x.repeat(1, channels, 1, 1))

        attacked = pgd_l2(
            logits,
            image[:, : image.shape[1] // channels].to(device),
            torch.tensor([label], device=device),
            size / math.sqrt(channels),
            PGDSettings(steps=_STEPS, clip=True),  # the page shows an image
            generator=torch.Generator().manual_seed(0),
        )
        return attacked.repeat(1, channels, 1, 1).cpu()

    def _read(self, content: bytes) -> tuple[Picture, Tensor]:
        picture = read_picture(io.BytesIO(content), self.input_shape, "the image")
        return picture, to_unit(picture.pixels[None], torch.float64)


def _shown(answer: Prediction) -> dict[str, Any]:
    """The prediction as the page prints it. Radii are rounded down, so that no more is shown than is proved."""
    likeliest = sorted(answer.probabilities.items(), key=lambda item: -item[1])[:5]
    return {
        "label": answer.label,
        "likeliest": [{"label": name, "share": share} for name, share in likeliest],
        "radius": answer.radius,
        "radius_text": str(rounded_down(answer.radius, 4)),
        "radius_255_text": str(rounded_down(answer.radius_255, 2)),
    }


def is_grey(image: Tensor) -> bool:  # 1 c h w
    """Whether all channels are equal."""
    return bool((image == image[:, :1]).all())


def amplified(change: Tensor) -> Tensor:
    """A difference of two images as an image: mid-grey is no change, black or white the largest."""
    return 0.5 + change / (2 * change.abs().max().clamp_min(torch.finfo(change.dtype).tiny))
