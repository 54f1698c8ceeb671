"""Pseudo-labels: the labels that a frozen model gives to unlabelled images, and the two files that store them.

Invariants:

* `pseudo-labels.safetensors` holds `labels` (int64) and `confidence` (float32), one of each per image;
* `pseudo-labels.json`, written last, names the images and the model, with checksums of images, model and labels;
* labels of other images or of another model are refused.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from lotnet.certification.batches import usual_batch
from lotnet.data import to_unit
from lotnet.errors import InputError
from lotnet.files import atomic_write, unreadable
from lotnet.frozen.model import FrozenModel
from lotnet.records import parse_record, write_record
from lotnet.training.precision import evaluating

FORMAT = 1
_NAME = "pseudo-labels"


@dataclass(frozen=True)
class Teacher:
    """The run that a teacher comes from."""

    run: str
    """Its path; that of a teacher beside the labels is relative to their folder."""
    config: dict[str, Any]
    """`RunConfig.to_dict` of its settings."""


@dataclass(frozen=True)
class Origin:
    """Where pseudo-labels come from."""

    source: str = ""
    """The source of the images, in words."""
    classes: tuple[str, ...] = ()
    near_duplicates_of_test_images_left_out: int | None = None
    """None if none were looked for, and in files of earlier versions."""
    teacher: Teacher | None = None


@dataclass(frozen=True)
class _Digests:
    images: int
    """Number of images."""
    images_sha256: str
    teacher_sha256: str
    labels_sha256: str
    """SHA-256 of the file of labels."""


@dataclass(frozen=True)
class _Heading(Origin, _Digests):
    """The content of pseudo-labels.json. The fields of `_Digests` come first."""


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """One label per image, in the order of the images."""

    labels: Tensor  # n, int64
    confidence: Tensor  # n, float32
    """Softmax probability of the label. It is not calibrated, and the paper's method does not use it."""

    def agreeing(self, labels: Tensor) -> int:
        """Number of images on which both agree. `labels` may be fewer: they belong to the first images."""
        return int((self.labels[: len(labels)] == labels).sum())


def label(
    model: FrozenModel,
    images: Tensor,
    classes: int,
    *,
    batch_size: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> PseudoLabels:
    """Label uint8 images by the float64 program of a frozen model, on the device the model is on."""
    device = next(iter(model.buffers())).device
    program = model.astype(torch.float64).to(device)
    shares = []
    with evaluating():
        for batch in images.split(usual_batch(model.input_shape, batch_size)):
            shares.append(program(to_unit(batch.to(device), torch.float64)).softmax(dim=1).cpu())
            if shares[-1].shape[1] < classes:
                raise InputError(
                    f"the teacher has {shares[-1].shape[1]} classes and the data have {classes}: train it on all"
                )
            progress(len(batch))
    confidence, labels = torch.cat(shares).max(dim=1)
    return PseudoLabels(labels, confidence.float())


def write(folder: Path, found: PseudoLabels, images: Tensor, model: FrozenModel, origin: Origin) -> None:
    """Write both files. `origin` is stored with the labels."""
    content = save({"labels": found.labels, "confidence": found.confidence})
    atomic_write(folder / f"{_NAME}.safetensors", content)
    digests = (_digest_of(images), model.spec.checksum, hashlib.sha256(content).hexdigest())
    write_record(folder / f"{_NAME}.json", _Heading(len(images), *digests, **vars(origin)), FORMAT)


def read(folder: Path, images: Tensor, model: FrozenModel) -> PseudoLabels | None:
    """Read the labels of these images by this model; None if there are none yet."""
    path = folder / f"{_NAME}.json"
    if not path.exists():
        return None
    remedy = f"delete {path} and the student to make them again"
    heading = parse_record(_Heading, _content(path, remedy), str(path), remedy, (FORMAT,))
    content = _content(path.with_suffix(".safetensors"), remedy)
    try:
        if heading.labels_sha256 != hashlib.sha256(content).hexdigest():
            raise ValueError(f"the labels are not those of {path.name}")
        tensors = load(content)
        found = PseudoLabels(tensors["labels"], tensors["confidence"])
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"the pseudo-labels in {folder} are damaged ({error}): {remedy}") from None
    for other, stored, own in (
        ("other images", heading.images_sha256, _digest_of(images)),
        ("another teacher", heading.teacher_sha256, model.spec.checksum),
    ):
        if stored != own:
            raise InputError(f"the pseudo-labels in {folder} are of {other}: restore the original, or {remedy}")
    return found


def _content(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"the pseudo-labels in {path.parent} are incomplete: {remedy}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _digest_of(images: Tensor) -> str:
    digest = hashlib.sha256(str(tuple(images.shape)).encode())
    digest.update(images.contiguous().numpy().data)
    return digest.hexdigest()
