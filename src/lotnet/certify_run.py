"""Certify the images of a split with a loaded model, and write the certificates."""

import time
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from lotnet.certification.audit import audit
from lotnet.certification.certificate import certify
from lotnet.certification.summary import summarize
from lotnet.data import Split
from lotnet.files import writable_folder
from lotnet.frozen.model import FrozenModel
from lotnet.load_model import LoadedModel, tensors
from lotnet.pretrained import save_pretrained
from lotnet.progress import progress_bar
from lotnet.runs.certificates import (
    FILE,
    Certification,
    ImageCertificate,
    certificates_path,
    write_certification,
)
from lotnet.training.precision import evaluating


def certify_split(
    loaded: LoadedModel,
    name: str,
    split: Split,
    radii: list[float],
    device: torch.device,
    console: Console,
    batch_size: int = 250,
    out: Path | None = None,
) -> Certification:
    """Certify every image of the split called `name`, and write certificates.json into the model's folder, or `out`.

    Where `certificates_path` chooses another file, a model card of all test images stays as it is, too.
    For a run, the frozen model and its model card are written to the folder `model` beside it, ready to share.
    """
    out = writable_folder(loaded.folder if out is None else out)  # checked first, because proofs take long
    images, labels = tensors(split)
    model = loaded.model.to(device)
    with progress_bar(console) as progress:
        layers = progress.add_task("proving layers", total=None)
        graph = model.astype(torch.float64).to(device)
        rows = []
        for row in audit(graph):
            rows.append(row)
            progress.update(layers, completed=len(rows))
        progress.update(layers, total=len(rows))
        task = progress.add_task("certifying images", total=len(images))
        done = certify(
            graph, images, labels, batch_size=batch_size, progress=lambda n: progress.update(task, advance=n)
        )
    record = Certification(
        model=str(loaded.folder),
        data=loaded.data,
        split=name,
        checksum=model.settings["checksum"],
        checkpoint=loaded.checkpoint,
        complete=name == "test" and len(split) == len(loaded.dataset().test),
        evaluation_seconds=_evaluation_seconds(model, images, batch_size),
        device=str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
        summary=summarize(done, radii, loaded.classes, images[0].numel()),
        audit=rows,
        images=[ImageCertificate(**asdict(certificate), index=n) for n, certificate in enumerate(done)],
    )
    path = certificates_path(out, record)
    if loaded.run is not None and path.name == FILE:
        # The model is written first: certificates.json refers to it, and is used only if the model is there.
        save_pretrained(loaded.model, out / "model", record, loaded.folder.resolve().name)
    write_certification(path, record)
    return record


def _evaluation_seconds(model: FrozenModel, images: torch.Tensor, batch_size: int) -> float:
    """Seconds for one pass of the deployed float32 model over the images, without reading or moving them."""
    device = next(iter(model.buffers())).device
    batches = [batch.to(device, model.precision) for batch in images.split(batch_size)]
    with evaluating():
        model(batches[0])
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        for batch in batches:
            model(batch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return time.perf_counter() - start
