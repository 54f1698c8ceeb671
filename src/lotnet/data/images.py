"""Decode image files: rotate as EXIF says, crop to a centred square, and resize.

Invariants:

* the result is RGB, side x side, uint8, and depends only on the file and `side`;
* an image that is side x side already keeps its pixels;
* training and prediction share this module, so they see the same image.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from lotnet.data.formats import open_image, undecodable
from lotnet.errors import InputError

_CLUTTER = {"thumbs.db", "desktop.ini"}


def image_files(folder: Path) -> list[Path]:
    """All files in `folder` and its subfolders, sorted. Hidden files and files of file managers are left out."""
    return sorted(file for file in folder.rglob("*") if file.is_file() and _visible(file.relative_to(folder)))


def decode(file: Path | IO[bytes], side: int, name: str | Path | None = None) -> Tensor:
    """Decode one image. Returns c h w, uint8. Error messages call the image `name`."""
    return torch.from_numpy(_decode(file, side, name or str(file))).permute(2, 0, 1).contiguous()


def decode_all(files: Sequence[Path], side: int) -> Tensor:
    """Decode several images. Returns n c h w, uint8, in the order of `files`."""
    images = np.empty((len(files), 3, side, side), dtype=np.uint8)
    # Threads suffice, because Pillow releases the interpreter lock while it decodes and resizes.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        decoded: Iterator[np.ndarray] = pool.map(lambda file: _decode(file, side, file), files)
        for image, slot in zip(decoded, images, strict=True):
            slot[:] = image.transpose(2, 0, 1)
    return torch.from_numpy(images)


def _decode(file: Path | IO[bytes], side: int, name: str | Path) -> np.ndarray:  # h w c
    try:
        with open_image(file, name) as image:
            # Pillow can decode a JPEG at a fraction of its size. Here it stays at least four times the final size.
            image.draft(image.mode, (4 * side, 4 * side))
            return np.array(_square(_rgb(ImageOps.exif_transpose(image)), side))
    except InputError:
        raise
    except Exception as error:  # damaged bytes make Pillow's decoders raise nearly any exception type
        raise undecodable(name) from error


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        # Pillow would clip 16-bit grey at 255. The upper byte of each pixel is the 8-bit image.
        image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("32-bit pixels have no agreed white")
    return image.convert("RGB")


def _square(image: Image.Image, side: int) -> Image.Image:
    short = min(image.size)
    left, top = (image.width - short) // 2, (image.height - short) // 2
    image = image.crop((left, top, left + short, top + short))
    # Pillow widens its bicubic filter when it reduces an image, which prevents aliasing.
    return image if short == side else image.resize((side, side), Image.Resampling.BICUBIC)


def _visible(path: Path) -> bool:
    return not any(part.startswith(".") for part in path.parts) and path.name.lower() not in _CLUTTER
