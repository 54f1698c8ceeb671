"""Pack the best network of a run, and certify exactly the network that was packed."""

from dataclasses import replace
from math import prod

import torch
from rich.console import Console

from lotnet.certification.certificate import certify
from lotnet.certification.plain import RADII
from lotnet.certification.summary import Summary, summarize
from lotnet.data import Split, UnitImages
from lotnet.frozen.model import FrozenModel
from lotnet.pretrained.packed import Packed, PackedResult, PackedSession, Training, pack
from lotnet.progress import progress_bar
from lotnet.runs.directory import Run


def pack_run(
    run: Run, split: Split, total: int, device: torch.device, console: Console, batch_size: int | None = None
) -> tuple[Packed, Summary]:
    """Pack the best network of a run, and certify it on the split, of `total` test images; nothing is written.

    Return the packed network, which includes its certified accuracy, and the whole summary.
    """
    packed = _packed(run)
    summary = _certified(packed.unpack().to(device), split, packed.classes, batch_size, console)
    return replace(packed, result=PackedResult.of(summary), total=total), summary


def _packed(run: Run) -> Packed:
    settings = run.config.to_dict()
    trained = Training(
        loss=settings["loss"],
        optimizer=settings["optimizer"],
        trainer=settings["trainer"],
        seed=run.config.seed,
        sessions=[PackedSession(s.commit, s.versions, s.hardware) for s in run.environment().sessions],
    )
    return pack(run.best_model(), run.config.model, run.images(), run.classes(), run.config.data.name, trained)


def _certified(
    model: FrozenModel, split: Split, classes: tuple[str, ...], batch_size: int | None, console: Console
) -> Summary:
    with progress_bar(console) as progress:
        task = progress.add_task("certifying images", total=len(split))
        program = model.astype(torch.float64)
        done = certify(
            program,
            UnitImages(split.pixels),
            split.labels,
            batch_size=batch_size,
            progress=lambda n: progress.update(task, advance=n),
        )
    return summarize(done, list(RADII), classes, prod(split.shape))
