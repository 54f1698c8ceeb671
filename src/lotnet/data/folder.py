"""`folder:PATH`: your own images, in one folder per class.

The layout is either `train/<class>/*` and `test/<class>/*`, or `<class>/*`. In the second case a stratified fifth of
the images (seed 0) becomes the test split. Class names are the sorted folder names. Decoded images are cached beside
the prepared data sets, one file per folder and shape. They are decoded again when the name, size or modification time
of a file has changed.

Images keep the pixels of the files where that is possible. `choose_shape` has the rule. Decoded images stay in the
cached file, so a folder may be larger than memory.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

from torch import Tensor

from lotnet.data import cache
from lotnet.data.dataset import Dataset, Split
from lotnet.data.images import Header, decode_all, decode_in_parts, read_headers
from lotnet.data.layout import Files, Layout, folder_path, read_layout
from lotnet.data.progress_log import log_progress
from lotnet.errors import InputError
from lotnet.files import make_folder
from lotnet.records import read_record, write_record

SIDE = 32
"""Side of images that cannot keep their size."""
LARGEST_KEPT = 256
"""Images of one common size keep it if neither height nor width is larger."""

Shape = tuple[int, int, int]
Side = int | tuple[int, int]
"""Side of square images, or (height, width)."""
Channels = Literal["grey", "rgb"]
CHANNELS: dict[Channels, int] = {"grey": 1, "rgb": 3}


@dataclass(frozen=True)
class Survey:
    """What the headers of the image files in a folder say."""

    state: str
    """Digest of names, sizes and modification times of the files."""
    images: int
    grey: int
    """Number of grey images."""
    sizes: int
    """Number of different sizes."""
    height: int
    width: int
    """The most frequent size."""
    alpha: int
    """Number of images with an alpha channel, or with another mark of transparent pixels."""
    bits_16: int
    """Number of images with 16 bits for each level."""
    cmyk: int
    palette: int
    rotated: int
    """Number of images that EXIF data ask to rotate or mirror."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The shape that the images of a folder are decoded to, and the reason in words."""

    shape: Shape
    words: str
    """The shape, and what becomes of the pixels of the files."""
    labels: Tensor
    """Labels of the training images."""
    classes: int


def load(name: str, root: Path, side: Side | None = None, channels: Channels | None = None) -> Dataset:
    """Load the data set `folder:PATH`, from the cache under `root` if it is up to date."""
    path = folder_path(name)
    if side is None or channels is None:
        shape = choose_shape(name, root, side, channels).shape
    else:
        shape = _shape(side, channels)
    layout = read_layout(path)
    state = layout.fingerprint()
    cached = _cached(path, root, shape, "safetensors")
    if cache.origin(cached) == state:
        try:
            return replace(cache.read(cached, in_file=True), name=name)  # one folder can be named by several paths
        except InputError:
            pass  # the cached copy is damaged: decode the images again
    train, test = (_decoded(files, shape, path) for files in (layout.train, layout.test))
    cache.write_parts(name, layout.classes, train, test, cached, state)
    return cache.read(cached, in_file=True)


def choose_shape(name: str, root: Path, side: Side | None = None, channels: Channels | None = None) -> Choice:
    """Choose the shape of the decoded images. `side` and `channels` force a part of it.

    Images of one common size keep it, if it is at most `LARGEST_KEPT`; others get the side `SIDE`. If all files are
    grey, images have one channel, otherwise three.
    """
    layout = read_layout(folder_path(name))
    found = _survey(layout, folder_path(name), root)
    keeps = found.sizes == 1 and max(found.height, found.width) <= LARGEST_KEPT
    if channels is None:
        channels = "grey" if found.grey == found.images else "rgb"
    shape = _shape((found.height, found.width) if side is None and keeps else side or SIDE, channels)
    size, original = f"{shape[1]} x {shape[2]} pixels", f"{found.height} x {found.width}"
    reasons = []
    if found.sizes > 1:
        reasons.append(f"the files have {found.sizes} sizes and are resized")
    elif shape[1:] != (found.height, found.width):
        reasons.append(f"the files have {original} and are resized")
    if reasons and side is None:
        reasons[-1] += " (--data.side chooses another size)"
    if channels == "rgb" and found.grey:
        mixed = f"{found.grey:,} of {found.images:,} files are grey and become RGB"
        reasons.append(f"{mixed} (--data.channels grey makes all grey)" if found.grey < found.images else mixed)
    elif channels == "grey" and found.grey < found.images:
        reasons.append(f"{found.images - found.grey:,} of {found.images:,} files are in colour and become grey")
    reasons += _conversions(found, channels)
    colour = {"grey": "grey", "rgb": "RGB"}[channels]
    words = f"{size}, {colour}: {'; '.join(reasons) or 'as in the files'}"
    return Choice(shape, words, layout.train.labels, len(layout.classes))


def _conversions(found: Survey, channels: Channels) -> list[str]:
    """What becomes of alpha, 16-bit levels, CMYK, palettes and rotated images, where there are any."""
    conversions = [
        (found.alpha, "have an alpha channel, which is dropped"),
        (found.bits_16, "are 16-bit and lose their lower 8 bits"),
        (found.cmyk if channels == "rgb" else 0, "are CMYK and become RGB"),
        (found.palette if channels == "rgb" else 0, "use a palette and become RGB"),
        (found.rotated, "are rotated or mirrored as their EXIF data say"),
    ]
    return [f"{count:,} of {found.images:,} files {change}" for count, change in conversions if count]


def _survey(layout: Layout, path: Path, root: Path) -> Survey:
    """Read the headers of all images, or the survey stored under `root` if no file has changed."""
    stored, state = _cached(path, root, None, "json"), layout.fingerprint()
    try:
        found = read_record(Survey, stored, "it is made again")
        if found.state == state:
            return found
    except InputError:
        pass
    images = len(layout.train) + len(layout.test)
    every = read_headers(chain(layout.train.paths(), layout.test.paths()))
    every = log_progress(every, f"reading headers in {path}", images, lambda _: 1)
    headers = Counter(every)  # many are equal

    def count(condition: Callable[[Header], bool]) -> int:
        return sum(n for header, n in headers.items() if condition(header))

    sizes: Counter[tuple[int, int]] = Counter()
    for header, n in headers.items():
        sizes[header.height, header.width] += n
    (height, width), _ = max(sizes.items(), key=lambda item: (item[1], item[0]))
    found = Survey(
        state=state,
        images=images,
        grey=count(lambda header: header.is_grey),
        sizes=len(sizes),
        height=height,
        width=width,
        alpha=count(lambda header: header.has_alpha),
        bits_16=count(lambda header: header.has_16_bits),
        cmyk=count(lambda header: header.mode == "CMYK"),
        palette=count(lambda header: header.mode in ("P", "PA")),
        rotated=count(lambda header: header.rotated),
    )
    make_folder(root, "choose another with LOTNET_DATA")
    write_record(stored, found)
    return found


def read(path: Path, shape: Shape, name: str) -> Dataset:
    """Decode the images in `path` into memory."""
    layout = read_layout(path)
    train, test = (Split(decode_all(list(f.paths()), shape), f.labels) for f in (layout.train, layout.test))
    return Dataset(name, train, test, layout.classes)


def _shape(side: Side, channels: Channels) -> Shape:
    height, width = side if isinstance(side, tuple) else (side, side)
    if min(height, width) < 1:
        raise InputError(f"images cannot have {height} x {width} pixels: give a side of 1 or more")
    if channels not in get_args(Channels):
        raise InputError(f"there are no channels {channels!r}: use grey or rgb")
    return CHANNELS[channels], height, width


def _decoded(files: Files, shape: Shape, path: Path) -> cache.Part:
    parts = decode_in_parts(files.paths(), shape)
    return cache.Part(files.labels, shape, log_progress(parts, f"decoding {path}, once", len(files), len))


def _cached(path: Path, root: Path, shape: Shape | None, kind: str) -> Path:
    where = hashlib.sha256(f"{path.resolve()}\n{shape}".encode()).hexdigest()[:16]
    return root / f"folder-{where}.{kind}"
