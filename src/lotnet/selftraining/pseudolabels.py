"""Pseudo-labels: the labels that a frozen model gives to unlabelled images, and the two files that store them.

Invariants:

* `pseudo-labels.safetensors` holds `labels` (int64) and `confidence` (float32), one of each per image;
* `pseudo-labels.json`, written last, names the images and the model, with checksums of images, model and labels;
* labels of other images or of another model are refused.
"""

import hashlib
import json
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
from lotnet.records import parse_json
from lotnet.training.precision import evaluating

FORMAT = 1
_NAME = "pseudo-labels"
_OTHER = {"images_sha256": "other images", "teacher_sha256": "another teacher"}


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


def write(folder: Path, found: PseudoLabels, images: Tensor, model: FrozenModel, about: dict[str, Any]) -> None:
    """Write both files. `about` is stored with the labels: the source of the images, the settings of the model."""
    content = save({"labels": found.labels, "confidence": found.confidence})
    atomic_write(folder / f"{_NAME}.safetensors", content)
    heading = {"format": FORMAT, "images": len(images), **_belongs_to(images, model)}
    heading |= {"labels_sha256": hashlib.sha256(content).hexdigest(), **about}
    atomic_write(folder / f"{_NAME}.json", (json.dumps(heading, indent=1) + "\n").encode())


def read(folder: Path, images: Tensor, model: FrozenModel) -> PseudoLabels | None:
    """Read the labels of these images by this model; None if there are none yet."""
    path, tensors_path = folder / f"{_NAME}.json", folder / f"{_NAME}.safetensors"
    if not path.exists():
        return None
    remedy = f"delete {path} and the student to make them again"
    heading = None
    try:
        heading = parse_json(path.read_text())
        content = tensors_path.read_bytes()
        if heading["format"] != FORMAT or heading["labels_sha256"] != hashlib.sha256(content).hexdigest():
            raise ValueError("format or checksum")
        tensors = load(content)
        found = PseudoLabels(tensors["labels"], tensors["confidence"])
    except FileNotFoundError:
        raise InputError(f"the pseudo-labels in {folder} are incomplete: {remedy}") from None
    except OSError as error:
        raise unreadable(path if heading is None else tensors_path, error) from None
    except (SafetensorError, ValueError, KeyError, TypeError):
        raise InputError(f"the pseudo-labels in {folder} are damaged or of another version: {remedy}") from None
    for name, checksum in _belongs_to(images, model).items():
        if heading.get(name) != checksum:
            raise InputError(f"the pseudo-labels in {folder} are of {_OTHER[name]}: restore the original, or {remedy}")
    return found


def _belongs_to(images: Tensor, model: FrozenModel) -> dict[str, str]:
    digest = hashlib.sha256(str(tuple(images.shape)).encode())
    digest.update(images.contiguous().numpy().data)
    return {"images_sha256": digest.hexdigest(), "teacher_sha256": model.spec.checksum}
