"""Images on pages: the levels are kept, and only large images are scaled down."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from lotnet.data import to_unit
from lotnet.data.pictures import levels, png, png_url

IMAGES = torch.arange(4 * 256, dtype=torch.int64).remainder(256).to(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_levels_invert_the_conversion_to_pixels(dtype):
    assert torch.equal(levels(to_unit(IMAGES, dtype)), IMAGES)
    assert levels(torch.tensor([-1.0, 0.4999 / 255, 0.5001 / 255, 7.0])).tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_a_picture_holds_the_same_levels(channels, mode):
    image = IMAGES[: channels * 8 * 12].view(channels, 8, 12)
    picture = Image.open(io.BytesIO(png(image, largest=12)))
    assert (picture.mode, picture.size) == (mode, (12, 8))
    assert np.array_equal(np.asarray(picture).reshape(8, 12, channels), image.permute(1, 2, 0))
    start, content = png_url(image).split(",")
    assert start == "data:image/png;base64" and base64.b64decode(content) == png(image)
    assert Image.open(io.BytesIO(png(image, largest=6))).size == (6, 4)
