"""`lotnet certify`."""

import json
import time
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lotnet.certification.audit import AuditRow, audit
from lotnet.certification.certificate import certify
from lotnet.certification.formatting import rounded_down, rounded_up
from lotnet.certification.summary import CLAIMS, Summary, summarize, write_certificates
from lotnet.cli.arguments import Parser
from lotnet.data import Split
from lotnet.errors import InputError
from lotnet.frozen.model import FrozenModel
from lotnet.load_model import MODEL, LoadedModel, choose_device, load_model, tensors
from lotnet.pretrained import save_pretrained
from lotnet.training.precision import evaluating

_TITLES = {
    "plain": "plain (literature)",
    "real": "claim A: real function",
    "float": "claim B: float64 program",
}


def main(arguments: list[str]) -> int:
    parser = Parser("lotnet certify", "Prove, for each image, a radius inside which the prediction cannot change.")
    parser.add_argument("model", type=str, help=MODEL)
    parser.add_argument("--split", type=str, default="test", help="test or train.")
    parser.add_argument(
        "--radii", type=str, nargs="+", default=["36/255", "72/255", "108/255"], help="Radii of the table."
    )
    parser.add_argument("--batch_size", type=int, default=250, help="Images at a time.")
    parser.add_common("limit", "device", "json")
    options = parser.read(arguments)
    check_split(options.split)
    check_counts(options, batch_size=1)
    radii = [parse_radius(text) for text in options.radii]
    console = Console(stderr=options.json)
    device = choose_device(options.device)
    opened = load_model(options.model)
    split = opened.split(options.split, options.limit)
    summary, rows, about = prove(opened, options.split, split, radii, device, console, options.batch_size)
    path = opened.file("certificates.json")
    if options.json:
        print(json.dumps({"written": str(path), **about, "summary": asdict(summary)}))
        return 0
    _show(console, summary, options.radii, rows, about["evaluation_seconds"])
    console.print(f"One certificate for each image: {path}", soft_wrap=True, highlight=False)
    return 0


def prove(
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
    with bar(console) as progress:
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


def check_split(name: str) -> None:
    if name not in ("test", "train"):
        raise InputError(f"there is no split {name}: choose test or train")


def check_counts(options: Any, **least: int) -> None:
    """Refuse options below the least that makes sense, before any work is done."""
    for name, limit in least.items():
        if options[name] < limit:
            raise InputError(f"--{name} cannot be {options[name]}: give {limit} or more")


def parse_radius(text: str) -> float:
    try:
        value = float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise InputError(f"a radius is a number or a fraction such as 36/255, not {text!r}") from None
    if value < 0:
        raise InputError(f"a radius cannot be negative, as {text} is: give 0 or more")
    return value


def bar(console: Console) -> Progress:
    """Of long work: shown on a terminal, gone when done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


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


def _show(console: Console, summary: Summary, names: list[str], rows: list[AuditRow], seconds: float) -> None:
    table = Table(title=f"Certified accuracy on {summary.images} images, clean {summary.clean:.2%}")
    for heading in ("certificate", *(f"at {name}" for name in names), "mean radius"):
        table.add_column(heading, justify="left" if heading == "certificate" else "right")
    for claim in CLAIMS:
        at = (f"{share:.2%}" for share in summary.certified[claim])
        table.add_row(_TITLES[claim], *at, str(rounded_down(summary.mean_radius[claim], 4)))
    console.print(table)
    if len(summary.classes) <= 20:
        table = Table(title="By class, claim B")
        for heading in ("class", "images", "clean", *(f"at {name}" for name in names)):
            table.add_column(heading, justify="left" if heading == "class" else "right")
        for item in summary.classes:
            shares = (f"{share:.1%}" for share in (item["clean"], *item["certified"]))
            table.add_row(item["name"], str(item["images"]), *shares)
        console.print(table)
    table = Table(title="Layers: proved bound of the largest singular value of the stored tensors")
    for heading in ("layer", "kind", "bound", "orthogonality error", "seconds"):
        table.add_column(heading, justify="left" if heading in ("layer", "kind") else "right")
    for row in rows:
        error = "" if row.orthogonality_error is None else f"{row.orthogonality_error:.1e}"
        table.add_row(row.name, row.kind, rounded_up(row.lipschitz_bound, 9), error, f"{row.seconds:.2f}")
    console.print(table)
    notes: list[Any] = [
        f"Lipschitz bound of the features, in pixels: {rounded_up(summary.lipschitz_bound, 6)}",
        f"Implied mean radii: l-infinity {rounded_down(summary.linf_mean_radius, 5)}, "
        f"l1 {rounded_down(summary.l1_mean_radius, 4)}",
        f"Evaluation of all images by the float32 model: {seconds:.2f} s",
    ]
    if summary.not_finite:
        notes.append(f"{summary.not_finite} images have NaN or infinite pixels: their radius is 0")
    for note in notes:
        console.print(note, soft_wrap=True, highlight=False)
