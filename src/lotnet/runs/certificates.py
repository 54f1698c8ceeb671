"""certificates.json: the certificate of each image of a split, and the proved bound of each layer."""

import json
from collections.abc import Iterable
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

    def labels(self) -> np.ndarray:
        """The true label of each image."""
        if any(image.label is None for image in self.images):
            raise InputError("these certificates have no labels: certify a labelled split")
        return np.array([image.label for image in self.images], dtype=np.int64)


def read_certification(path: Path, remedy: str) -> Certification:
    return read_record(Certification, path, remedy)


def certificates_path(folder: Path, record: Certification) -> Path:
    """Where to write these certificates: certificates.json, unless that has all test images and these are only a part.

    So certificates of a part never replace those of all.
    """
    try:
        known = read_certification(folder / FILE, "it is replaced")
    except InputError:
        return folder / FILE
    if known.complete and known.checksum == record.checksum and not record.complete:
        return folder / f"certificates-{record.split}-{record.summary.images}.json"
    return folder / FILE


def write_certification(path: Path, record: Certification) -> None:
    """Write the record as JSON, with one line per image."""
    head = asdict(record)
    images = ",\n  ".join(json.dumps(image) for image in _index_first(head.pop("images")))
    text = json.dumps({"format": FORMAT, **head}, indent=1).removesuffix("\n}")
    atomic_write(path, f'{text},\n "images": [\n  {images}\n ]\n}}\n'.encode())


def _index_first(images: Iterable[dict[str, object]]) -> Iterable[dict[str, object]]:
    return ({"index": image["index"], **image} for image in images)
