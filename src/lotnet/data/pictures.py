"""Pixels as PNG files and data URLs, for pages."""

import base64
import io

import torch
from PIL import Image
from torch import Tensor


def levels(pixels: Tensor) -> Tensor:
    """The nearest levels, uint8, of pixels in [0, 1]. Pixels outside are clipped."""
    return (255 * pixels.clamp(0, 1)).round().to(torch.uint8)


def png(image: Tensor, largest: int | None = None) -> bytes:  # c h w, uint8, grey or RGB
    """The content of a PNG file. If `largest` is given, larger images are scaled down to that side."""
    shown = image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(shown[..., 0] if shown.shape[-1] == 1 else shown)
    if largest is not None and max(picture.size) > largest:
        picture.thumbnail((largest, largest))
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def png_url(image: Tensor, largest: int | None = None) -> str:  # c h w, uint8, grey or RGB
    """The PNG file as a data URL."""
    return f"data:image/png;base64,{base64.b64encode(png(image, largest)).decode()}"
