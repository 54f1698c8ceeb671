"""The tables of the page. They show the main numbers of every chart without JavaScript."""

import math
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from lotnet.certification.formatting import rounded_down
from lotnet.certification.intervals import in_words, wilson
from lotnet.certification.plain import RADII, in_255ths
from lotnet.certification.summary import CLAIM_TITLES
from lotnet.data import PREFIX
from lotnet.paper.results import command_of
from lotnet.paper.tables import EPOCHS
from lotnet.progress import duration
from lotnet.report.collect import RunData
from lotnet.runs.metrics import best_epoch

PAPER = dict(zip(RADII, ("cert_36", "cert_72", "cert_108"), strict=True))
"""Radius: the column of the paper's tables."""


@dataclass(frozen=True)
class Row:
    cells: list[str]
    """The first cell names the row."""
    slot: int | None = None
    """Number of the run that colours the row, if any."""
    kind: str = ""
    """Style of the row: paper, difference, changed, total, or none."""


@dataclass(frozen=True)
class Table:
    caption: str
    head: list[str]
    rows: list[Row] = field(default_factory=list)
    text: bool = False
    """Whether cells are words, not numbers."""


def comparison(runs: list[RunData]) -> Table:
    """Every run; the paper's row if there is one, and the difference in percentage points."""
    radii = runs[0].certification.summary.radii
    table = Table(
        "Certified accuracy by claim B", ["Run", "Clean", *map(in_255ths, radii), "Mean radius", "Parameters", "Epochs"]
    )
    for slot, run in enumerate(runs):
        shares = [run.clean, *(run.certified(radius) for radius in radii)]
        last = [str(rounded_down(run.mean_radius, 4)), f"{run.environment.parameters:,}", str(len(run.metrics))]
        table.rows.append(Row([run.name, *map(percent, shares), *last], slot))
        between = (in_words(wilson(share, len(run))) for share in shares)
        table.rows.append(Row(["95% interval", *between, "", "", ""], kind="difference"))
        if run.paper is None:
            continue
        theirs = [run.paper.clean, *(getattr(run.paper, PAPER.get(radius, ""), None) for radius in radii)]
        name = f"Paper: {run.paper.model}, {run.paper.conv}"
        table.rows.append(
            Row([name, *("" if x is None else f"{x:.2f}%" for x in theirs), "", "", str(EPOCHS)], kind="paper")
        )
        apart = ("" if x is None else f"{100 * share - x:+.2f}" for share, x in zip(shares, theirs, strict=True))
        table.rows.append(Row(["Difference, points", *apart, "", "", ""], kind="difference"))
    return table


def claims(run: RunData, slot: int) -> Table:
    summary = run.certification.summary
    table = Table(run.name, ["Certificate", *map(in_255ths, summary.radii), "Mean radius"])
    for claim, title in reversed(CLAIM_TITLES.items()):
        shares = map(percent, summary.certified[claim])
        table.rows.append(
            Row([title[0].upper() + title[1:], *shares, str(rounded_down(summary.mean_radius[claim], 6))], slot)
        )
    return table


def attacks(runs: list[RunData]) -> Table | None:
    """Accuracies under attack. Invariant in l2: certified <= attacked <= clean."""
    head = [
        "Run",
        "Images",
        "Clean",
        "PGD, l2",
        "AutoAttack, l2",
        "Certified",
        "PGD, l∞",
        "Attacked at radius",
        "Broken",
    ]
    table = Table("Accuracy under attack", head)
    for slot, run in enumerate(runs):
        if (found := run.attacks) is None:
            continue
        attacked = {name: percent(share) for name, share in found.attacked.items()}
        l2, linf = in_255ths(found.radius), in_255ths(found.linf_radius)
        cells = [
            run.name,
            f"{found.images:,}",
            percent(found.clean),
            *(f"{attacked[name]} at {l2}" if name in attacked else "" for name in ("pgd_l2", "autoattack_l2")),
            f"{percent(found.certified)} at {l2}",
            f"{attacked['pgd_linf']} at {linf}" if "pgd_linf" in attacked else "",
            f"{found.checked:,}",
            str(len(found.counterexamples)),
        ]
        table.rows.append(Row(cells, slot))
    used = [n for n in range(len(head)) if any(row.cells[n] for row in table.rows)]
    rows = [Row([row.cells[n] for n in used], row.slot) for row in table.rows]
    return Table(table.caption, [head[n] for n in used], rows) if rows else None


def training(runs: list[RunData]) -> Table:
    radius = in_255ths(runs[0].config.trainer.radius)
    table = Table("Epochs", ["Run", "Epoch", "Loss", "Clean", f"Certified at {radius}", "Time so far"])
    for slot, run in enumerate(runs):
        best = best_epoch(run.metrics, run.config.trainer.radius)
        epochs = {"first": run.metrics[0].epoch, "best": best, "last": run.metrics[-1].epoch}
        seconds = 0.0
        for record in run.metrics:
            seconds += record.seconds
            names = [name for name, epoch in epochs.items() if epoch == record.epoch]
            if not names:
                continue
            certified = record.certified.get(radius)
            shares = ["" if share is None else percent(share) for share in (record.clean, certified)]
            cells = [
                f"{run.name}, {' and '.join(names)}",
                str(record.epoch),
                f"{record.loss:.4g}",
                *shares,
                duration(seconds),
            ]
            table.rows.append(Row(cells, slot))
    return table


def provenance(runs: list[RunData]) -> Table:
    """Command, commit, hardware and versions of each run, side by side."""
    return _side_by_side("Provenance", runs, [_provenance(run) for run in runs])


def settings(runs: list[RunData]) -> Table:
    """All settings, side by side. Rows that differ are marked."""
    table = _side_by_side("Settings", runs, [_settings(run) for run in runs])
    rows = [Row(row.cells, kind="changed" if len(set(row.cells[1:])) > 1 else "") for row in table.rows]
    return replace(table, rows=rows)


def differences(table: Table) -> Table | None:
    """The rows of `settings` that differ; None for a single run."""
    if len(table.head) < 3:
        return None
    rows = [Row([name, *(cell or "not one of its settings" for cell in cells)]) for name, *cells in _changed(table)]
    return Table("Settings that differ", table.head, rows, text=True)


def _changed(table: Table) -> list[list[str]]:
    return [row.cells for row in table.rows if row.kind == "changed"]


def _settings(run: RunData) -> dict[str, str]:
    """All settings; those that are paths on this machine without the folders."""
    found = _flat(run.config.to_dict()) | {"data.name": run.data}
    local = {name: PurePath(found[name]).name for name in ("data.root", "init") if name in found}
    return found | local


def percent(share: float) -> str:
    return f"{share:.2%}" if math.isfinite(share) else "none"


def _side_by_side(caption: str, runs: list[RunData], columns: list[dict[str, str]]) -> Table:
    """A table with one row per name that occurs in any column."""
    table = Table(caption, ["", *(run.name for run in runs)], text=True)
    for name in dict.fromkeys(name for column in columns for name in column):
        table.rows.append(Row([name, *(column.get(name, "") for column in columns)]))
    return table


def _provenance(run: RunData) -> dict[str, str]:
    session, certification = run.session, run.certification
    hardware = session.hardware
    return {
        "Command": _without_paths(session.command),
        "Commit": session.commit or "not known: an installed package",
        "Seed": str(run.config.seed),
        "Started": session.started.replace("T", " "),
        "Sessions": str(len(run.environment.sessions)),
        "Trained on": f"{hardware.device}, processes: {hardware.processes}",
        "Processor": f"{hardware.processor}, {hardware.cores} cores",
        "Kept epoch": _kept(run),
        "Training time": duration(sum(record.seconds for record in run.metrics)),
        "Versions": ", ".join(f"{name} {version}" for name, version in session.versions.items() if version),
        "Certified on": f"{certification.images_in_words()}, {certification.device}",
        "Evaluation": f"{certification.evaluation_seconds:.2f} s for all images, float32, {certification.device}",
        "Model checksum": certification.checksum,
    }


def _kept(run: RunData) -> str:
    epoch = f"{best_epoch(run.metrics, run.config.trainer.radius)} of {len(run.metrics)}"
    if run.metrics[-1].clean is None:
        return f"{epoch}, the last: trained on all training images, without validation images"
    return f"{epoch}, the best on validation images"


def _without_paths(words: list[str]) -> str:
    """The command of a run. Paths are cut to their last part, because a report is made to be given away."""
    kept = []
    for word in words:
        name, equals, value = word.rpartition("=")
        prefix = PREFIX if value.startswith(PREFIX) else ""
        path = PurePath(value.removeprefix(prefix))
        kept.append(f"{name}{equals}{prefix}{path.name if path.is_absolute() or prefix else path}" if value else word)
    return command_of(kept)


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = f"{value:.6g}" if isinstance(value, float) else _word(value)
    return found


def _word(value: Any) -> str:
    words = {None: "none", True: "yes", False: "no"}
    return words[value] if value is None or isinstance(value, bool) else str(value) if value != {} else "none"
