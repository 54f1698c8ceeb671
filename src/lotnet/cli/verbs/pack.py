"""`lotnet pack`."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from lotnet.arguments import Parser
from lotnet.certification.certificate import certify
from lotnet.certification.summary import Summary, summarize
from lotnet.cli.options import check_counts
from lotnet.data import Split, load
from lotnet.errors import InputError
from lotnet.frozen.model import FrozenModel
from lotnet.load_model import choose_device, tensors
from lotnet.pretrained.packed import Packed, is_packed, pack
from lotnet.progress import progress_bar
from lotnet.runs.data import limited
from lotnet.runs.directory import Run
from lotnet.training.evaluate import RADII

_KEPT = ("images", "clean", "radii", "certified", "mean_radius", "lipschitz_bound")
"""Of a summary, in packed.json."""


def main(arguments: list[str]) -> int:
    parser = Parser(
        "lotnet pack",
        "Write a run's best network as a small folder to give away: free kernels in half precision, and the certified "
        "accuracy of exactly this network on the test images.",
    )
    parser.add_argument("run", type=str, help="A run with a checkpoint.")
    parser.add_argument("--out", type=str | None, default=None, help="The folder; by default RUN/packed.")
    parser.add_argument("--batch_size", type=int, default=250, help="Images at a time.")
    parser.add_common("limit", "device", "json")
    options = parser.read(arguments)
    check_counts(options, batch_size=1)
    console = Console(stderr=options.json)
    device = choose_device(options.device)
    run = Run.open(Path(options.run))
    folder = Path(options.out) if options.out else run.path / "packed"
    if folder.exists() and not is_packed(folder) and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise InputError(f"{folder} exists and is not a packed model: choose another --out")
    data = run.config.data
    test = load(data.name, data.root, data.side).test
    small = _packed(run)
    summary = _certified(
        small.unpack().to(device),
        test if options.limit is None else limited(test, options.limit),
        small.classes,
        options.batch_size,
        console,
    )
    result = {key: value for key, value in dataclasses.asdict(summary).items() if key in _KEPT}
    size = dataclasses.replace(small, result=result).write(folder)
    if options.json:
        print(json.dumps({"written": str(folder), "bytes": size, "result": result}))
        return 0
    at = ", ".join(f"{share:.2%}" for share in summary.certified["float"])
    for line in (
        f"Written to {folder}: {size / 1e6:.1f} MB.",
        f"On {summary.images} test images: {summary.clean:.2%} right, certified at 36, 72 and 108/255 (claim B): {at}.",
    ):
        console.print(line, soft_wrap=True, highlight=False)
    return 0


def _packed(run: Run) -> Packed:
    settings: dict[str, Any] = {
        key: value for key, value in run.config.to_dict().items() if key in ("loss", "optimizer", "trainer", "seed")
    }
    sessions = run.environment().sessions
    trained = settings | {
        "sessions": [
            {"commit": s.commit, "versions": s.versions, "hardware": dataclasses.asdict(s.hardware)} for s in sessions
        ]
    }
    return pack(run.best_model(), run.config.model, run.images(), run.classes(), run.config.data.name, trained)


def _certified(
    model: FrozenModel, split: Split, classes: tuple[str, ...], batch_size: int, console: Console
) -> Summary:
    images, labels = tensors(split)
    with progress_bar(console) as progress:
        task = progress.add_task("certifying images", total=len(images))
        done = certify(
            model.astype(torch.float64),
            images,
            labels,
            batch_size=batch_size,
            progress=lambda n: progress.update(task, advance=n),
        )
    return summarize(done, list(RADII), classes, images[0].numel())
