"""certificates.json: the certificate of each image of a split, and the proved bound of each layer."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from lotnet.certification.audit import AuditRow
from lotnet.certification.certificate import Certificate
from lotnet.certification.summary import Summary
from lotnet.errors import InputError
from lotnet.files import atomic_write
from lotnet.records import read_record

FORMAT = 1
FILE = "certificates.json"
_PART = re.compile(r"certificates(?:-(test|train)-(\d+))?\.json")


@dataclass(frozen=True)
class ImageCertificate(Certificate):
    """The certificate of one image."""

    index: int = 0
    """Index among the certified images."""


@dataclass(frozen=True)
class Certification:
    """All certificates of a split, and the model and data that they are about."""

    data: str
    split: str
    checksum: str
    """Checksum of the frozen model."""
    device: str
    evaluation_seconds: float
    """Duration of one pass of the frozen float32 model over the images, on `device`."""
    summary: Summary
    audit: list[AuditRow]
    images: list[ImageCertificate]
    model: str = ""
    """Path or name that the model was loaded from."""
    checkpoint: str | None = None
    """SHA-256 of the checkpoint that the model was frozen from; None if the model is not from a run."""
    complete: bool | None = None
    """Whether these are all test images of the data set; None in files of earlier versions."""
    notes: list[str] = field(default_factory=list)
    """What to know about the data set, such as images that are in both splits (`lotnet.data.findings`)."""
    total: int | None = None
    """Number of images of the split; None in files of earlier versions."""

    def __post_init__(self) -> None:
        """Refuse values that `lotnet certify` cannot have written."""
        for shares in self.summary.certified.values():
            if len(shares) != len(self.summary.radii) or not all(0 <= share <= 1 for share in shares):
                raise ValueError("summary.certified is not one share for each radius")
        if not self.images or len(self.images) != self.summary.images:
            raise ValueError("there is not one certificate for each image")
        if not self.summary.lipschitz_bound > 0 or not all(row.lipschitz_bound >= 0 for row in self.audit):
            raise ValueError("a Lipschitz bound is negative")
        if min(min(image.prediction, image.radius_float) for image in self.images) < 0:
            raise ValueError("a prediction or a radius is negative")

    def images_in_words(self) -> str:
        """Which images these are, as in "1,000 test images" or "10 of 1,000 test images"."""
        if self.total is None and self.complete is False and self.split == "test":
            return f"{self.summary.images:,} of the test images"
        return images_in_words(self.summary.images, self.total, self.split)

    def labels(self) -> np.ndarray:
        """The true label of each image."""
        if any(image.label is None for image in self.images):
            raise InputError("these certificates have no labels: certify a labelled split")
        return np.array([image.label for image in self.images], dtype=np.int64)


def read_certification(path: Path, remedy: str) -> Certification:
    return read_record(Certification, path, remedy)


def certificates_path(folder: Path, record: Certification) -> Path:
    """Where to write these certificates. certificates.json has all test images, and only those.

    A part of them, and training images, have files of their own, so that none of them replaces another.
    """
    all_test = record.complete or (record.complete is None and record.split == "test")
    return folder / (FILE if all_test else part_file(record.split, record.summary.images))


def images_in_words(count: int, total: int | None, split: str) -> str:
    """How many images of a split, and of how many, unless these are all or their number is not known.

    >>> images_in_words(1000, 1000, "test"), images_in_words(10, 1000, "train")
    ('1,000 test images', '10 of 1,000 training images')
    """
    of = "" if total is None or total == count else f"of {total:,} "
    return f"{count:,} {of}{'training' if split == 'train' else split} images"


def part_file(split: str, images: int) -> str:
    """The name of the file with certificates of a part of the test images, or of training images."""
    return f"certificates-{split}-{images}.json"


def certificate_files(folder: Path) -> list[Path]:
    """All files with certificates in a folder: all test images first, then parts of them, then training images."""
    return sorted((path for path in folder.glob("certificates*.json") if _PART.fullmatch(path.name)), key=_rank)


def _rank(path: Path) -> tuple[int, int]:
    found = _PART.fullmatch(path.name)
    assert found is not None
    split, images = found.groups()
    return (0, 0) if split is None else (1 if split == "test" else 2, -int(images))


def comes_first(folder: Path, record: Certification) -> bool:
    """Whether no file in the folder that a reader prefers to this record is about the same model."""
    own = certificates_path(folder, record)
    return not any(_is_about(path, record.checksum) for path in certificate_files(folder) if _rank(path) < _rank(own))


def _is_about(path: Path, checksum: str) -> bool:
    try:
        return read_certification(path, "it is made again").checksum == checksum
    except InputError:
        return False


def move_part(folder: Path) -> None:
    """Move a part that an earlier version wrote to certificates.json into a file of its own."""
    with suppress(InputError):
        known = read_certification(folder / FILE, "it is replaced")
        (folder / FILE).replace(certificates_path(folder, known))


def write_certification(path: Path, record: Certification) -> None:
    """Write the record as JSON, with one line per image."""
    head = asdict(record)
    images = ",\n  ".join(json.dumps(image) for image in _index_first(head.pop("images")))
    text = json.dumps({"format": FORMAT, **head}, indent=1).removesuffix("\n}")
    atomic_write(path, f'{text},\n "images": [\n  {images}\n ]\n}}\n'.encode())


def _index_first(images: Iterable[dict[str, object]]) -> Iterable[dict[str, object]]:
    return ({"index": image["index"], **image} for image in images)
