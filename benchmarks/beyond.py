"""What each ingredient gave: the candidates of benchmarks/beyond_rows.yaml, compared on validation images.

    python benchmarks/run_queue.py benchmarks/beyond_rows.yaml --device cuda --runs runs/beyond
    python benchmarks/beyond.py --runs runs/beyond

adds the finished runs to results/beyond.json, and writes the table results/beyond.md from all that are in it.
Accuracies are means over the last epochs of a run, because a single epoch is as noisy as the differences between the
candidates.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from lotnet.certification.plain import RADII, in_255ths
from lotnet.files import atomic_write
from lotnet.paper.results import command_of
from lotnet.records import read_record, write_record
from lotnet.runs.directory import Run
from lotnet.runs.metrics import EpochMetrics

LAST = 5
"""Epochs whose mean is taken."""
COLUMNS = ("clean", *map(in_255ths, RADII))
LIST = Path(__file__).with_name("beyond_rows.yaml")


@dataclass(frozen=True)
class Candidate:
    """A trained candidate. Accuracies are in [0, 1], of validation images, by the standard certificate."""

    name: str
    ingredient: str
    """What it has, beyond the run `against`."""
    against: str | None
    command: str
    """With which it was trained."""
    epochs: int
    seconds: float
    """Of training, validation included."""
    device: str
    commit: str | None
    parameters: int
    accuracy: dict[str, float]
    """Means over the last epochs."""


@dataclass(frozen=True)
class Candidates:
    """The content of beyond.json."""

    last: int
    """Epochs whose mean is taken."""
    rows: list[Candidate]


def candidate(item: dict[str, Any], folder: Path) -> Candidate | None:
    """The candidate of an item of the list, or None if its run is not trained to its end."""
    path = folder / item["name"]
    if not (path / "config.yaml").is_file():
        return None
    run = Run.open(path)
    metrics = run.metrics()
    if len(metrics) < run.config.trainer.epochs:
        return None
    environment = run.environment()
    session = environment.sessions[0]
    return Candidate(
        name=item["name"],
        ingredient=item["ingredient"],
        against=item.get("against"),
        command=command_of(session.command),
        epochs=len(metrics),
        seconds=round(sum(record.seconds for record in metrics), 1),
        device=session.hardware.device,
        commit=session.commit,
        parameters=environment.parameters,
        accuracy={
            column: round(fmean(_accuracy(record, column) for record in metrics[-LAST:]), 5) for column in COLUMNS
        },
    )


def _accuracy(record: EpochMetrics, column: str) -> float:
    return record.clean if column == "clean" else record.certified[column]


def page(candidates: Candidates) -> str:
    """The text of results/beyond.md: each candidate after the one that it is compared with."""
    rows = {row.name: row for row in candidates.rows}
    lines = [
        "# What each ingredient gave",
        "",
        "Made by `benchmarks/beyond.py` from beyond.json; do not edit. Accuracies are percentages of the validation",
        "images, 5 % of the training images, by the standard certificate. They are means over the last "
        f"{candidates.last} epochs. The",
        "runs take about the same time. In brackets is the difference to the run that has all but the ingredient.",
        "",
        f"| run | ingredient | against | {' | '.join(COLUMNS)} | epochs | training | parameters | on |",
        "|---|---|---" + "|---" * (len(COLUMNS) + 4) + "|",
    ]
    for row in candidates.rows:
        base = rows.get(row.against or "")
        cells = [row.name, row.ingredient, row.against or ""]
        cells += [_cell(row.accuracy[column], base and base.accuracy[column]) for column in COLUMNS]
        cells += [str(row.epochs), f"{row.seconds:.0f} s", f"{row.parameters / 1e6:.1f} million", row.device]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(
        [*lines, "", "These commands repeat them:", "", *(f"    {row.command}" for row in candidates.rows), ""]
    )


def _cell(share: float, base: float | None) -> str:
    return f"{100 * share:.2f}" if base is None else f"{100 * share:.2f} ({100 * (share - base):+.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", type=Path, default=LIST)
    parser.add_argument("--runs", type=Path, default=Path("runs/queue"))
    parser.add_argument("--results", type=Path, default=Path("results"))
    options = parser.parse_args()
    stored = options.results / "beyond.json"
    known = read_record(Candidates, stored, "restore it").rows if stored.exists() else []
    items = yaml.safe_load(options.list.read_text())
    found = [row for item in items if (row := candidate(item, options.runs)) is not None]
    rows = {row.name: row for row in (*known, *found)}
    order = {item["name"]: place for place, item in enumerate(items)}
    ordered = sorted(rows.values(), key=lambda row: (order.get(row.name, len(order)), row.name))
    candidates = Candidates(LAST, ordered)
    write_record(stored, candidates)
    atomic_write(options.results / "beyond.md", page(candidates).encode())
    print(f"{len(found)} finished runs found, {len(ordered)} in {stored}")


if __name__ == "__main__":
    main()
