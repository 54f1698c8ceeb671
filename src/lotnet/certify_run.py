"""Certify the images of a split with a loaded model, and write the certificates."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from math import prod
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from lotnet.certification.audit import audit
from lotnet.certification.batches import usual_batch
from lotnet.certification.certificate import Certificates, certify
from lotnet.certification.summary import summarize
from lotnet.data import Split, UnitImages, findings, to_unit
from lotnet.errors import InputError
from lotnet.files import writable_folder
from lotnet.frozen.model import FrozenModel
from lotnet.load_model import LoadedModel
from lotnet.pretrained import save_pretrained
from lotnet.progress import progress_bar
from lotnet.runs.certificates import (
    FILE,
    Certification,
    ImageCertificate,
    certificates_path,
    comes_first,
    move_part,
    part_file,
    read_certification,
    write_certification,
)
from lotnet.training.precision import evaluating

_PART = 32 * 2**20
"""Numbers of the images that are in memory at a time; at least one batch is."""


def certify_split(
    loaded: LoadedModel,
    name: str,
    split: Split,
    radii: list[float],
    device: torch.device,
    console: Console,
    batch_size: int | None = None,
    out: Path | None = None,
) -> Certification:
    """Certify every image of the split called `name`, and write the certificates into the model's folder, or `out`.

    Certificates of a part, or of training images, have files of their own names (`certificates_path`). For a run, the
    frozen model and its model card are written to the folder `model` beside it, ready to share. A card of more images
    stays as it is.
    """
    out = writable_folder(loaded.folder if out is None else out)  # checked first, because proofs take long
    dataset = loaded.dataset()
    batch_size = usual_batch(split.shape, batch_size)
    model = loaded.model.to(device)
    with progress_bar(console) as progress:
        layers = progress.add_task("proving layers", total=None)
        program = model.astype(torch.float64).to(device)
        rows = []
        for row in audit(program):
            rows.append(row)
            progress.update(layers, completed=len(rows))
        progress.update(layers, total=len(rows))
        task = progress.add_task("certifying images", total=len(split))
        done = certify(
            program,
            UnitImages(split.pixels),
            split.labels,
            batch_size=batch_size,
            progress=lambda n: progress.update(task, advance=n),
        )
    record = Certification(
        model=str(loaded.folder),
        data=loaded.data,
        split=name,
        checksum=model.spec.checksum,
        checkpoint=loaded.checkpoint,
        complete=name == "test" and len(split) == len(dataset.test),
        evaluation_seconds=_evaluation_seconds(model, split, batch_size),
        device=str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
        summary=summarize(done, radii, loaded.classes, prod(split.shape)),
        audit=rows,
        images=[ImageCertificate(**asdict(certificate), index=n) for n, certificate in enumerate(done)],
        notes=findings(dataset),
        total=len(getattr(dataset, name)),
    )
    _write(record, loaded, out)
    return record


def add_radii(loaded: LoadedModel, known: Certification, radii: list[float], out: Path) -> Certification:
    """Summarize certificates at more radii, and write them again. Nothing is proved anew."""
    summary = known.summary
    done = Certificates.of(known.images, summary.lipschitz_bound, summary.precision)
    dimensions = prod(loaded.model.input_shape)
    record = replace(known, summary=summarize(done, radii, loaded.classes, dimensions))
    _write(record, loaded, writable_folder(out))
    return record


def known_certification(loaded: LoadedModel, out: Path, name: str, split: Split) -> Certification | None:
    """The certificates of this model and split that are in the folder `out`; None if there are none."""
    mine = (loaded.model.spec.checksum, loaded.checkpoint, name, len(split))
    for file in (FILE, part_file(name, len(split))):
        with suppress(InputError):
            known = read_certification(out / file, "it is made again")
            theirs = (known.checksum, known.checkpoint, known.split, known.summary.images)
            same = mine == theirs and torch.equal(torch.from_numpy(known.labels()), split.labels)
            if same and not known.summary.not_finite:
                return known
    return None


def _parts(split: Split, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Whole batches of the split, some at a time."""
    step = batch_size * max(1, _PART // (batch_size * prod(split.shape)))
    for start in range(0, len(split), step):
        chosen = slice(start, start + step)
        yield split.read(chosen), split.labels[chosen]


def _write(record: Certification, loaded: LoadedModel, out: Path) -> None:
    move_part(out)
    if loaded.run is not None and comes_first(out, record):
        # The model is written first: certificates refer to it, and are used only if the model is there.
        save_pretrained(loaded.model, out / "model", record, loaded.folder.resolve().name)
    write_certification(certificates_path(out, record), record)


def _evaluation_seconds(model: FrozenModel, split: Split, batch_size: int) -> float:
    """Seconds for one pass of the deployed float32 model over the images, without reading or moving them."""
    device = next(iter(model.buffers())).device
    seconds = 0.0
    with evaluating():
        for images, _ in _parts(split, batch_size):
            pixels = to_unit(images, torch.float64)
            batches = [batch.to(device, model.precision) for batch in pixels.split(batch_size)]
            if not seconds:
                model(batches[0])  # allocates memory
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            start = time.perf_counter()
            for batch in batches:
                model(batch)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds += time.perf_counter() - start
    return seconds
