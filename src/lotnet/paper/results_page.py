"""results/README.md: the paper's tables with our figures beside them, comparisons, every run, findings, and gaps.

Figures are drawn by benchmarks/paper_figure.py, and shown where they are in the folder.
"""

from collections.abc import Collection
from pathlib import Path

from lotnet.files import atomic_write
from lotnet.paper.comparisons import SelfTrained, ablations, paper_gain, repeated, selftrained
from lotnet.paper.results import Result, load_all, measured, title
from lotnet.paper.tables import ACCURACIES, EPOCHS, TITLES, Row, rows

COLUMNS = ACCURACIES | {"pgd_linf": "PGD, l-infinity 8/255"}
_HEADINGS = " | ".join(ACCURACIES.values())
_RULE = "|---" * len(ACCURACIES) + "|"
_OTHER_IMAGES = "The paper's 500,000 unlabeled images are not to be had; ours are those of the table on self-training."
NOTES = {
    "pgd-linf-8-255": "The paper does not define its attack, so the figures are not comparable (see the findings).",
    "ssl-crhh": _OTHER_IMAGES,
    "ssl": _OTHER_IMAGES,
}
"""What a reader of one of the paper's tables has to know."""
SELF_TRAINING_FIGURE = "self-training.png"


def figure_of(table: str) -> str:
    """The file of the figure of one of the paper's tables."""
    return f"paper-{table}.png"


def write_readme(folder: Path) -> None:
    """Write README.md of a folder of results, from its JSON files, findings.md and the figures that are there."""
    findings = folder / "findings.md"
    text = findings.read_text() if findings.is_file() else ""
    atomic_write(folder / "README.md", markdown(load_all(folder), text, figures_in(folder)).encode())


def figures_in(folder: Path) -> set[str]:
    """The names of all figures in a folder."""
    return {path.name for path in folder.glob("*.png")}


def markdown(results: list[Result], findings: str = "", figures: Collection[str] = ()) -> str:
    """The text of results/README.md."""
    lines = [
        "# Measured results",
        "",
        "Made by `lotnet record` from the JSON files and findings.md here; do not edit. Accuracies are percentages of",
        "all test images. Certified accuracies are of claim B, about the float64 program (docs/certificates.md). The",
        "best epoch was chosen on validation images, 5 % of the training set, which were not trained on.",
        *_paper_tables(results, figures),
        *_ablations(results),
        *_self_training(results, figures),
        *_seeds(results),
        *_attacked(results),
        *_all_runs(results),
    ]
    lines += ["", findings.strip()] if findings else []
    lines += ["", *_not_run(results), ""]
    return "\n".join(lines)


def _paper_tables(results: list[Result], figures: Collection[str]) -> list[str]:
    """One table for each table of the paper in which we have a row."""
    done = measured(results)
    if not done:
        return []
    lines = ["", "## The paper's tables", ""]
    lines += [f"Each cell has the paper's figure after {EPOCHS} epochs, ours, and the difference. In figures, filled"]
    lines += ["markers are ours, hollow ones the paper's (`python benchmarks/paper_figure.py`)."]
    for table in dict.fromkeys(row.table for row in done):
        found = {row: done[row] for row in rows() if row.table == table and row in done}
        shown = [
            key
            for key in COLUMNS
            if any(key in result.percentages() and _has(row, key) for row, result in found.items())
        ]
        lines += ["", f"### {TITLES[table]}", ""]
        lines += [NOTES[table], ""] if table in NOTES else []
        if figure_of(table) in figures:
            lines += [f"![Our accuracy beside the paper's, one group for each network]({figure_of(table)})", ""]
        lines += [f"| data | network | layer | our epochs | {' | '.join(COLUMNS[key] for key in shown)} |"]
        lines += ["|---|---|---|---" + "|---" * len(shown) + "|"]
        for row, result in found.items():
            cells = (_compared(row, result, key) for key in shown)
            kind = f"{row.conv} {row.variant}".strip()
            lines.append(f"| {row.dataset} | {row.model} | {kind} | {result.epochs} | {' | '.join(cells)} |")
    return lines


def _ablations(results: list[Result]) -> list[str]:
    """The sign of each ablation, ours beside the paper's."""
    found = ablations(results)
    if not found:
        return []
    lines = ["", "## Ablations: who is ahead", ""]
    lines += ["What the first network has more than the second, in points: the paper's figure, and ours. Both of our"]
    lines += ["networks had the same epochs and the same seed.", ""]
    lines += [f"| network | first | second | our epochs | {_HEADINGS} |", f"|---|---|---|---{_RULE}"]
    for pair in found:
        paper, ours = pair.differences()
        cells = " | ".join(f"{paper[key]:+.2f} / **{ours[key]:+.2f}**" for key in ACCURACIES)
        network = f"{pair.usual.model} {pair.usual.conv}"
        variants = f"{pair.usual.variant} | {pair.changed.variant}"
        lines.append(f"| {network} | {variants} | {pair.ours[0].epochs} | {cells} |")
    return lines


def _self_training(results: list[Result], figures: Collection[str]) -> list[str]:
    """Students beside the networks that were trained on the same labels alone."""
    found = selftrained(results)
    if not found:
        return []
    lines = ["", "## Self-training: how many unlabeled images", ""]
    lines += ["Each cell has the accuracy, and the difference to the same network without unlabeled images. Left out"]
    lines += [f"because they are too near to a test image: {_left_out(found)}.", ""]
    if SELF_TRAINING_FIGURE in figures:
        lines += [f"![Certified accuracy against the number of unlabeled images]({SELF_TRAINING_FIGURE})", ""]
    lines += [f"| network | unlabeled images | epochs | {_HEADINGS} | compared with |", f"|---|---|---{_RULE}---|"]
    for item in found:
        student = item.student
        ours, more = student.percentages(), item.differences()
        cells = " | ".join(f"{ours[key]:.2f} ({more[key]:+.2f})" for key in ACCURACIES)
        about = f"{_network(student)} | {item.images:,} | {student.epochs}"
        lines.append(f"| {about} | {cells} | {item.about_baseline} |")
    gains = {_network(item.student): gain for item in found if (gain := paper_gain(item.student)) is not None}
    for network, gain in gains.items():
        cells = " | ".join(f"({gain[key]:+.2f})" for key in ACCURACIES)
        lines.append(f"| {network}, paper | 500,000 | {EPOCHS} | {cells} | supervised, {EPOCHS} epochs |")
    return lines


def _left_out(found: list[SelfTrained]) -> str:
    """Counts of near-duplicates, by the source of the images."""
    counts: dict[str, int] = {}
    for item in found:
        source, count = item.learned.source, item.learned.near_duplicates
        if source is not None and count is not None:
            counts[source.replace(",", " and ")] = count
    return "; ".join(f"{count:,} images of {source}" for source, count in counts.items()) or "none were looked for"


def _network(result: Result) -> str:
    return ", ".join(title(result).split(", ")[:3])


def _seeds(results: list[Result]) -> list[str]:
    """Mean and standard deviation of what was run with several seeds."""
    found = repeated(results)
    if not found:
        return []
    lines = ["", "## Several seeds", "", "Mean and standard deviation over seeds.", ""]
    lines += [f"| network | data | seeds | {_HEADINGS} |", f"|---|---|---{_RULE}"]
    for group in found:
        mean, spread = group.mean(), group.spread()
        first = group.results[0]
        seeds = ", ".join(str(seed) for seed in sorted(result.run_config.seed for result in group.results))
        cells = " | ".join(f"{mean[key]:.2f} ± {spread[key]:.2f}" for key in ACCURACIES)
        lines.append(f"| {title(first)} | {first.run_config.data.name} | {seeds} | {cells} |")
    return lines


def _attacked(results: list[Result]) -> list[str]:
    """Every network that was attacked in l-infinity."""
    found = [(result, result.linf) for result in results if result.linf is not None]
    if not found:
        return []
    lines = ["", "## Accuracy under the l-infinity attack, all networks", ""]
    lines += ["Radius 8/255, 50 steps of a quarter of the radius, points in [0, 1], float64. The findings say what is"]
    lines += ["comparable with the paper.", "", "| run | clean | attacked | on the |", "|---|---|---|---|"]
    for result, linf in found:
        ours = result.percentages()
        lines.append(f"| {result.name} | {ours['clean']:.2f} | {ours['pgd_linf']:.2f} | {linf.loss} |")
    return lines


def _has(row: Row, key: str) -> bool:
    return getattr(row, key) is not None


def _compared(row: Row, result: Result, key: str) -> str:
    ours, theirs = result.percentages().get(key), getattr(row, key)
    if ours is None or theirs is None:
        return ""
    return f"{theirs:.2f} / **{ours:.2f}** / {ours - theirs:+.2f}"


def _all_runs(results: list[Result]) -> list[str]:
    if not results:
        return []
    lines = ["", "## Every run", ""]
    lines += [
        f"| run | {' | '.join(ACCURACIES.values())} | epochs | training | on |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        found = result.percentages()
        device = result.sessions[0].hardware.device
        cells = [
            *(f"{found[key]:.2f}" for key in ACCURACIES),
            f"{result.epochs}{'' if _validated(result) else ', last kept: trained on all images'}",
            f"{result.train_seconds:.0f} s",
            device,
        ]
        lines.append(f"| {result.name} | {' | '.join(cells)} |")
    lines += ["", "These commands repeat them:", ""]
    return [*lines, *(f"    {result.command}" for result in results)]


def _validated(result: Result) -> bool:
    return result.run_config.data.validation > 0


def _not_run(results: list[Result]) -> list[str]:
    """The certified rows that have no result, one line per table, data set and layer."""
    done = measured(results)
    missing = [row for row in rows() if row.cert_36 is not None and row not in done]
    models: dict[str, list[str]] = {}
    for row in missing:
        models.setdefault(f"{row.table}, {row.dataset}, {row.conv}", []).append(f"{row.model} {row.variant}".strip())
    lines = [f"## Rows of the paper not run yet: {len(missing)}", ""]
    lines += [f"* {kind}: {', '.join(names)}" for kind, names in models.items()]
    return [*lines, "", "`lotnet paper` names the command of each."]
