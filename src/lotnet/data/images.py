"""Decode image files: rotate as EXIF says, convert to grey or RGB, crop to the centre, and resize.

Invariants:

* the result is uint8 of the requested shape (c, h, w), and depends only on the file and that shape. One channel is
  grey, three are RGB;
* a grey or RGB image that has this height and width already keeps its pixels;
* training and prediction share this module, so they see the same image.

How pixels are converted:

* grey to RGB repeats the level three times; RGB to grey is Rec. 601 luma, which keeps grey levels;
* alpha is left out: a transparent pixel has the colour that is stored with it;
* a palette image has the colours of its palette, and counts as a colour image;
* of 16 bits the upper eight are kept; floating-point and 32-bit pixels have no agreed white and are refused;
* CMYK is converted by Pillow's formula, without a colour profile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from lotnet.data.formats import is_named_as_image, open_image, undecodable
from lotnet.errors import InputError

T = TypeVar("T")

_GREY = {"1", "L", "LA", "La", "I;16", "I;16L", "I;16B", "I;16N"}
_ORIENTATION = 0x0112  # the EXIF tag. 1 is upright, 2 to 8 are rotated, mirrored or both
_TURNED = 5  # from this orientation on, height and width change places

_FILES_AT_A_TIME = 128
_CLUTTER = {"thumbs.db", "desktop.ini"}
_WITH_ALPHA = {"LA", "La", "PA", "RGBA", "RGBa"}

_log = logging.getLogger("lotnet.data")


def image_files(folder: Path) -> list[Path]:
    """The image files in `folder` and its subfolders, sorted. Files that are no images by their names are logged."""
    names: list[str] = []
    skipped: list[str] = []
    for name in file_names(folder):
        (names if is_named_as_image(name) else skipped).append(name)
    if skipped:
        _log.info("%s: %s", folder, about_skipped(skipped))
    return [folder / name for name in names]


def about_skipped(names: Sequence[str]) -> str:
    """A sentence about files that are left out because of their names."""
    if len(names) == 1:
        return f"1 file is skipped because its name does not end like an image's: {names[0]}"
    return f"{len(names):,} files are skipped because their names do not end like an image's, for example {names[0]}"


def file_names(folder: Path) -> Iterator[str]:
    """The files in `folder` and its subfolders, sorted, with / between the parts of a name.

    Hidden files and files of file managers are left out.
    """
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 (paths of many images take much memory)
        entry = folder / name
        if name.startswith(".") or name.lower() in _CLUTTER:
            continue
        if entry.is_file():
            yield name
        elif entry.is_dir() and not entry.is_symlink():
            yield from (f"{name}/{inner}" for inner in file_names(entry))


@dataclass(frozen=True)
class Header:
    """What an image file says about its pixels."""

    height: int
    width: int
    """Height and width after the rotation that EXIF asks for."""
    mode: str
    """Pillow's name of the pixel format."""
    rotated: bool
    """Whether EXIF asks for a rotation or reflection."""
    has_alpha: bool
    """Whether pixels can be transparent, by a channel or by a level that stands for transparent pixels."""
    has_16_bits: bool

    @property
    def is_grey(self) -> bool:
        return self.mode in _GREY


def read_header(file: Path | IO[bytes], name: str | Path | None = None) -> Header:
    """Read the header of an image file. Error messages call the image `name`."""
    with _open(file, name or str(file)) as image:
        alpha, bits_16 = image.mode in _WITH_ALPHA or "transparency" in image.info, _has_16_bits(image)
        orientation = image.getexif().get(_ORIENTATION, 1)
        width, height = image.size if orientation < _TURNED else image.size[::-1]
        return Header(height, width, image.mode, 1 < orientation <= 8, alpha, bits_16)


def decode(file: Path | IO[bytes], shape: Sequence[int], name: str | Path | None = None) -> Tensor:
    """Decode one image to `shape` (c, h, w), uint8. Error messages call the image `name`."""
    return torch.from_numpy(_decode(file, shape, name or str(file)))


def decode_all(files: Sequence[Path], shape: Sequence[int]) -> Tensor:
    """Decode several images to `shape`. Returns n c h w, uint8, in the order of `files`."""
    return torch.cat([torch.empty(0, *shape, dtype=torch.uint8), *decode_in_parts(files, shape)])


def decode_in_parts(files: Iterable[Path], shape: Sequence[int]) -> Iterator[Tensor]:
    """Decode images to `shape` some hundred at a time. Each part is n c h w, uint8, in the order of `files`."""
    for part in _in_threads(lambda file: _decode(file, shape, file), files):
        yield torch.from_numpy(np.stack(part))


def read_headers(files: Iterable[Path]) -> Iterator[Header]:
    """Read the headers of several images, in the order of `files`."""
    return chain.from_iterable(_in_threads(read_header, files))


def _in_threads(work: Callable[[Path], T], files: Iterable[Path]) -> Iterator[list[T]]:
    """Work on some files at a time, because a pool keeps all that it is given, and all its results."""
    Image.init()  # Pillow registers its formats in the first call, which is not safe in several threads
    # Threads suffice, because Pillow releases the interpreter lock while it decodes and resizes.
    remaining = iter(files)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        while part := list(islice(remaining, _FILES_AT_A_TIME)):
            yield list(pool.map(work, part))


def center_box(height: int, width: int, shape: Sequence[int]) -> tuple[int, int]:
    """Height and width of the largest centred part of an image that has the proportions of `shape` (c, h, w)."""
    _, h, w = shape
    return min(height, max(1, round(width * h / w))), min(width, max(1, round(height * w / h)))


def _decode(file: Path | IO[bytes], shape: Sequence[int], name: str | Path) -> np.ndarray:  # c h w
    channels, height, width = shape
    with _open(file, name) as image:
        # Pillow can decode a JPEG at a fraction of its size. Here it stays at least four times the final size.
        image.draft(image.mode, (4 * width, 4 * height))
        if image.mode in ("I", "F") and not _has_16_bits(image):
            kind = "floating-point" if image.mode == "F" else "32-bit"
            raise InputError(f"{name} has {kind} pixels, which have no agreed white: convert it to 8 or 16 bits")
        pixels = np.asarray(_fit(_convert(ImageOps.exif_transpose(image), channels), height, width))
        return np.array(pixels.reshape(height, width, channels).transpose(2, 0, 1), order="C")


@contextmanager
def _open(file: Path | IO[bytes], name: str | Path) -> Iterator[Image.Image]:
    """Open an image and refuse one that is too large. Whatever goes wrong becomes an `InputError`."""
    try:
        with open_image(file, name) as image:
            yield image
    except InputError:
        raise
    except Exception as error:  # damaged bytes make Pillow's decoders raise nearly any exception type
        raise undecodable(name) from error


def _has_16_bits(image: Image.Image) -> bool:
    """Whether the file has 16 bits for each level. Pillow's modes say so only of grey PNG and TIFF files."""
    if image.mode.startswith("I;16"):
        return True
    for decoder, _, _, given in getattr(image, "tile", ()):  # until the pixels are read
        arguments = given if isinstance(given, tuple) else (given,)
        if any(isinstance(value, str) and ";16" in value for value in arguments):  # a raw mode such as RGB;16B
            return True
        if decoder == "ppm" and arguments[-1] > 255:  # the largest level
            return True
    return False


def _convert(image: Image.Image, channels: int) -> Image.Image:
    if image.mode == "I" or image.mode.startswith("I;16"):
        # Pillow would clip 16-bit grey at 255. The upper byte of each pixel is the 8-bit image.
        image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    # RGB first, because Pillow converts CMYK to RGB and from there to grey, but not each way directly.
    return image.convert("RGB").convert("L") if channels == 1 else image.convert("RGB")


def _fit(image: Image.Image, height: int, width: int) -> Image.Image:
    h, w = center_box(image.height, image.width, (1, height, width))
    left, top = (image.width - w) // 2, (image.height - h) // 2
    image = image.crop((left, top, left + w, top + h))
    # Pillow widens its bicubic filter when it reduces an image, which prevents aliasing.
    return image if (h, w) == (height, width) else image.resize((width, height), Image.Resampling.BICUBIC)
