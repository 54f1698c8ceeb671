"""results/README.md: the paper's tables with our figures beside them, every run, findings, and the rows not run yet."""

from pathlib import Path

from lotnet.files import atomic_write
from lotnet.paper.results import Result, load_all, measured
from lotnet.paper.tables import ACCURACIES, EPOCHS, TITLES, Row, rows

COLUMNS = ACCURACIES | {"pgd_linf": "PGD, l-infinity 8/255"}
FIGURE = "paper.png"
"""Made by benchmarks/paper_figure.py."""


def write_readme(folder: Path) -> None:
    """Write README.md of a folder of results, from its JSON files, findings.md and the figure if they are there."""
    findings = folder / "findings.md"
    text = markdown(
        load_all(folder), findings.read_text() if findings.is_file() else "", figure=(folder / FIGURE).is_file()
    )
    atomic_write(folder / "README.md", text.encode())


def markdown(results: list[Result], findings: str = "", figure: bool = False) -> str:
    """The text of results/README.md."""
    lines = [
        "# Measured results",
        "",
        "Made by `lotnet record` from the JSON files and findings.md here; do not edit. Accuracies are percentages of",
        "all test images. Certified accuracies are of claim B, about the float64 program (docs/certificates.md). The",
        "best epoch was chosen on validation images, 5 % of the training set, which were not trained on.",
        *_paper_tables(results, figure),
        *_all_runs(results),
    ]
    lines += ["", findings.strip()] if findings else []
    lines += ["", *_not_run(results), ""]
    return "\n".join(lines)


def _paper_tables(results: list[Result], figure: bool) -> list[str]:
    """One table for each table of the paper in which we have a row."""
    done = measured(results)
    if not done:
        return []
    lines = ["", "## The paper's tables", ""]
    lines += [f"Each cell has the paper's figure after {EPOCHS} epochs, ours, and the difference."]
    if figure:
        lines += [
            "",
            f"![Our clean and certified accuracy beside the paper's, one group for each network]({FIGURE})",
            "",
        ]
        lines += ["Filled markers are ours, hollow ones the paper's (`python benchmarks/paper_figure.py`)."]
    for table in dict.fromkeys(row.table for row in done):
        found = {row: done[row] for row in rows() if row.table == table and row in done}
        shown = [
            key
            for key in COLUMNS
            if any(key in result.percentages() and _has(row, key) for row, result in found.items())
        ]
        lines += ["", f"### {TITLES[table]}", ""]
        lines += [f"| data | network | layer | our epochs | {' | '.join(COLUMNS[key] for key in shown)} |"]
        lines += ["|---|---|---|---" + "|---" * len(shown) + "|"]
        for row, result in found.items():
            cells = (_compared(row, result, key) for key in shown)
            kind = f"{row.conv} {row.variant}".strip()
            lines.append(f"| {row.dataset} | {row.model} | {kind} | {result.epochs} | {' | '.join(cells)} |")
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
        device = result.sessions[0]["hardware"]["device"]
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
    return result.config.get("data", {}).get("validation") != 0


def _not_run(results: list[Result]) -> list[str]:
    """The supervised rows that have no result, one line per table, data set and layer."""
    done = measured(results)
    missing = [row for row in rows() if row.is_supervised and row not in done]
    models: dict[str, list[str]] = {}
    for row in missing:
        models.setdefault(f"{row.table}, {row.dataset}, {row.conv}", []).append(f"{row.model} {row.variant}".strip())
    lines = [f"## Supervised rows of the paper not run yet: {len(missing)}", ""]
    lines += [f"* {kind}: {', '.join(names)}" for kind, names in models.items()]
    return [*lines, "", "`lotnet paper` names the command of each."]
