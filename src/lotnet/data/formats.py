"""Open image files of the formats that lotnet means, and of no others.

Pillow knows some fifty formats, guesses the format from the content, and starts another program for some of them
(Ghostscript for EPS). So each place that opens an image does it here, with an explicit list.
"""

from __future__ import annotations

import logging
from pathlib import Path, PurePosixPath
from typing import IO

from PIL import Image

from lotnet.errors import InputError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Image formats that are decoded, by Pillow's names. PPM includes PGM and PBM."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
"""Usual ends of their names, in lower case. Files are decoded by their content, whatever they are called."""
_NOT_IN_PILLOW = (".heic", ".heif", ".jxl", ".mpo", ".dng", ".cr2", ".nef", ".arw", ".svg")
"""Ends of names of images that Pillow does not open. They are refused rather than skipped."""

MAX_PIXELS = 64_000_000
"""Largest number of pixels of an image: about four times that of a good camera, and small enough for memory."""

# Without a handler, what Pillow logs about a damaged file is printed, for example on the terminal of the demo server.
logging.getLogger("PIL").addHandler(logging.NullHandler())


def is_named_as_image(name: str) -> bool:
    """Whether a file may be an image by its name: it has no suffix, or the suffix of an image format.

    The format need not be one that is decoded, so that no image is left out without an error.
    """
    suffix = PurePosixPath(name).suffix.lower()
    return not suffix or suffix in _NOT_IN_PILLOW or Image.registered_extensions().get(suffix) in Image.OPEN


def undecodable(name: str | Path) -> InputError:
    known = ", ".join(FORMATS)
    return InputError(f"{name} does not decode as an 8- or 16-bit image: remove or replace it (lotnet reads {known})")


def open_image(file: Path | IO[bytes], name: str | Path) -> Image.Image:
    """Open an image and read its size. Raises an `InputError` if the file is no image, or has too many pixels."""
    try:
        image = Image.open(file, formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{name} claims more than {MAX_PIXELS} pixels: scale it down first") from error
    except Exception as error:  # damaged bytes make Pillow's decoders raise nearly any exception type
        raise undecodable(name) from error
    if image.width * image.height > MAX_PIXELS:
        image.close()
        raise InputError(f"{name} has {image.width} x {image.height} pixels: scale it down first")
    return image
