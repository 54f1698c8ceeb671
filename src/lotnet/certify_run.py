"""Certify the images of a split with a loaded model, and write what was proved."""

import time
from dataclasses import asdict
from typing import Any

import torch
from rich.console import Console

from lotnet.certification.audit import AuditRow, audit
from lotnet.certification.certificate import certify
from lotnet.certification.summary import Summary, summarize, write_certificates
from lotnet.data import Split
from lotnet.frozen.model import FrozenModel
from lotnet.load_model import LoadedModel, tensors
from lotnet.pretrained import save_pretrained
from lotnet.progress import progress_bar
from lotnet.training.precision import evaluating


def certify_split(
    opened: LoadedModel,
    name: str,
    split: Split,
    radii: list[float],
    device: torch.device,
    console: Console,
    batch_size: int = 250,
) -> tuple[Summary, list[AuditRow], dict[str, Any]]:
    """Certify every image of the split called `name`, and write certificates.json: its summary, audit and heading."""
    images, labels = tensors(split)
    model = opened.model.to(device)
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
    summary = summarize(done, radii, opened.classes, images[0].numel())
    about = {
        "model": str(opened.folder),
        "data": opened.data,
        "split": name,
        "checksum": model.settings["checksum"],
        "checkpoint": opened.checkpoint,
        "evaluation_seconds": _evaluation_seconds(model, images, batch_size),
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
    }
    write_certificates(opened.file("certificates.json"), summary, done, rows, about)
    if opened.run is not None:  # RUN/model is then a folder to give away
        about_model = {**about, "summary": asdict(summary)}
        save_pretrained(opened.model, opened.folder / "model", about_model, opened.folder.resolve().name)
    return summary, rows, about


def _evaluation_seconds(model: FrozenModel, images: torch.Tensor, batch_size: int) -> float:
    """One pass of the deployed float32 model over the images, without reading or moving them."""
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
