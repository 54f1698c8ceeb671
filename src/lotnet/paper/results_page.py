"""results/README.md: the paper's tables with our figures beside them, comparisons, findings, every run, and gaps.

Figures are drawn by benchmarks/paper_figure.py, and shown where they are in the folder.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

from lotnet.files import atomic_write
from lotnet.paper.comparisons import SelfTrained, ablations, paper_gain, repeated, selftrained
from lotnet.paper.results import Result, load_all, measured, title
from lotnet.paper.tables import ACCURACIES, EPOCHS, TITLES, Row, rows
from lotnet.paper.titles import DATA, data_title, joined, words

COLUMNS = ACCURACIES | {"pgd_linf": "attacked, l-infinity 8/255"}
_HEADINGS = " | ".join(ACCURACIES.values())
_RULE = "|---" * len(ACCURACIES) + "|"
_OTHER_IMAGES = "The paper's 500,000 unlabeled images are not available; ours are those of the table on self-training."
NOTES = {
    "pgd-linf-8-255": "The paper does not define its attack, so its figures and ours cannot be compared (see below).",
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
        *_INTRODUCTION,
        *_paper_tables(results, figures),
        *_ablations(results),
        *_self_training(results, figures),
        *_seeds(results),
        *_attacked(results),
    ]
    lines += ["", findings.strip()] if findings else []
    lines += [*_all_runs(results), "", *_not_run(results), ""]
    return "\n".join(lines)


_INTRODUCTION = (
    "# Measured results",
    "",
    "`lotnet record` writes this page from the JSON files and findings.md beside it; do not edit it.",
    "",
    "Accuracies are percentages of all test images. Certified accuracy is that of claim B, which is proved for the",
    "float64 program ([certificates](../docs/certificates.md)). The best epoch was chosen on validation images: 5 % of",
    "the training images, on which the network was not trained.",
    "",
    "Two kinds of orthogonal layers are compared: LOT (layer-wise orthogonal training) and SOC (skew orthogonal",
    "convolution). The losses are cross-entropy, CReg (certificate regularisation), offset cross-entropy and EMMA",
    "(efficient margin maximisation). Networks with the CReg loss have the HH (Householder activation). The",
    "[glossary](../docs/glossary.md) explains all terms.",
)


def reading_order(found: Iterable[Row]) -> list[Row]:
    """Rows of one table: by data set, then layer, then depth."""
    return sorted(found, key=lambda row: (row.dataset, row.conv, len(row.model), row.model, row.variant))


def _paper_tables(results: list[Result], figures: Collection[str]) -> list[str]:
    """One table for each table of the paper in which we have a row."""
    done = measured(results)
    if not done:
        return []
    lines = ["", "## The paper's tables", ""]
    lines += [
        f"Each cell has the paper's figure after {EPOCHS} epochs, **ours**, and the difference in points. Runs of"
    ]
    lines += ["fewer epochs can be compared with one another only. `python benchmarks/paper_figure.py` draws figures."]
    for table in dict.fromkeys(row.table for row in done):
        found = {row: done[row] for row in reading_order(row for row in done if row.table == table)}
        shown = [
            key
            for key in COLUMNS
            if any(key in result.percentages() and _has(row, key) for row, result in found.items())
        ]
        lines += ["", f"### {TITLES[table]}", ""]
        lines += [NOTES[table], ""] if table in NOTES else []
        if figure_of(table) in figures:
            lines += [f"![The paper's accuracy and ours, one line for each network]({figure_of(table)})"]
            lines += ["", _TO_SEE, ""]
        lines += [f"| data | network | our epochs | {' | '.join(COLUMNS[key] for key in shown)} |"]
        lines += ["|---|---|---" + "|---" * len(shown) + "|"]
        for row, result in found.items():
            cells = (_compared(row, result, key) for key in shown)
            network = ", ".join(filter(None, (row.model, row.conv, row.variant)))
            lines.append(f"| {DATA[row.dataset]} | {network} | {result.epochs} | {' | '.join(cells)} |")
    return lines


_TO_SEE = "A filled marker (ours) left of the hollow one above it (the paper's) is a lower accuracy."


def _ablations(results: list[Result]) -> list[str]:
    """The sign of each ablation, ours beside the paper's."""
    found = ablations(results)
    if not found:
        return []
    lines = ["", "## Ablations", ""]
    lines += ["Each cell is the accuracy of the first network minus that of the second, in points: the paper's figure,"]
    lines += ["and **ours**. Both of our networks had the same epochs and the same seed.", ""]
    lines += [f"| network | first | second | our epochs | {_HEADINGS} |", f"|---|---|---|---{_RULE}"]
    for pair in found:
        paper, ours = pair.differences()
        cells = " | ".join(f"{paper[key]:+.2f} / **{ours[key]:+.2f}**" for key in ACCURACIES)
        network = f"{pair.usual.model}, {pair.usual.conv}"
        variants = f"{pair.usual.variant} | {pair.changed.variant}"
        lines.append(f"| {network} | {variants} | {pair.ours[0].epochs} | {cells} |")
    return lines


def _self_training(results: list[Result], figures: Collection[str]) -> list[str]:
    """Students beside the networks that were trained on the same labels alone."""
    found = selftrained(results)
    if not found:
        return []
    lines = ["", "## Self-training: how many unlabeled images", ""]
    lines += ["Each cell has the accuracy, and in brackets the difference to the network without unlabeled images."]
    lines += [f"Images that are too near to a test image were left out: {_left_out(found)}.", ""]
    if SELF_TRAINING_FIGURE in figures:
        lines += [f"![Certified accuracy against the number of unlabeled images]({SELF_TRAINING_FIGURE})", ""]
        lines += ["At 0 is the network without unlabeled images: lines that rise from there gain from them.", ""]
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
        source, count = item.learned.settings.unlabeled, item.learned.images.near_duplicates
        if source is not None and count is not None:
            counts[source.replace(",", " and ")] = count
    return "; ".join(f"{count:,} images of {source}" for source, count in counts.items()) or "none were looked for"


def _network(result: Result) -> str:
    """Its title without the number of epochs."""
    config = result.run_config
    return joined(words(config.model, config.loss))


def _data(result: Result) -> str:
    return data_title(result.run_config.data.name)


def _seeds(results: list[Result]) -> list[str]:
    """Mean and standard deviation of what was run with several seeds."""
    found = repeated(results)
    if not found:
        return []
    lines = ["", "## Several seeds", "", "Mean and standard deviation of networks that differ in their seed only.", ""]
    lines += [f"| network | data | seeds | {_HEADINGS} |", f"|---|---|---{_RULE}"]
    for group in found:
        mean, spread = group.mean(), group.spread()
        first = group.results[0]
        seeds = ", ".join(str(seed) for seed in sorted(result.run_config.seed for result in group.results))
        cells = " | ".join(f"{mean[key]:.2f} ± {spread[key]:.2f}" for key in ACCURACIES)
        lines.append(f"| {title(first)} | {_data(first)} | {seeds} | {cells} |")
    return lines


def _attacked(results: list[Result]) -> list[str]:
    """Every network that was attacked in l-infinity."""
    found = [(result, result.linf) for result in results if result.linf is not None]
    if not found:
        return []
    lines = ["", "## Accuracy under the l-infinity attack", ""]
    lines += ["The attack is PGD (projected gradient descent) with 50 steps of a quarter of the radius 8/255. It keeps"]
    lines += ["pixels in [0, 1] and runs in float64.", ""]
    lines += ["| network | seed | clean | under attack | it attacks the |", "|---|---|---|---|---|"]
    for result, linf in found:
        ours = result.percentages()
        cells = f"{title(result)} | {result.config['seed']} | {ours['clean']:.2f} | {ours['pgd_linf']:.2f}"
        lines.append(f"| {cells} | {linf.loss} |")
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
    ordered = sorted(results, key=lambda result: (_data(result), _depth(result), title(result), result.name))
    lines = ["", "## Every run", ""]
    lines += [f"| network | data | {_HEADINGS} | epochs | training | on | file |", f"|---|---{_RULE}---|---|---|---|"]
    for result in ordered:
        found = result.percentages()
        cells = [
            _network(result),
            _data(result),
            *(f"{found[key]:.2f}" for key in ACCURACIES),
            f"{result.epochs}{'' if _validated(result) else ', last kept: trained on all images'}",
            f"{result.train_seconds:.0f} s",
            result.sessions[0].hardware.device,
            f"`{result.name}`",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "These commands repeat them, in the same order:", ""]
    return [*lines, *(f"    {result.command}" for result in ordered)]


def _depth(result: Result) -> int:
    depth: int = getattr(result.run_config.model, "depth", 0)
    return depth


def _validated(result: Result) -> bool:
    return result.run_config.data.validation > 0


def _not_run(results: list[Result]) -> list[str]:
    """The certified rows that have no result, one line for each table, data set and layer."""
    done = measured(results)
    missing = [row for row in rows() if row.cert_36 is not None and row not in done]
    tables: dict[str, dict[str, list[str]]] = {}
    for row in missing:
        kind = f"{DATA[row.dataset]}, {row.conv}"
        name = row.variant or row.model.removeprefix("LipConvnet-")
        tables.setdefault(row.table, {}).setdefault(kind, []).append(name)
    lines = [f"## Rows of the paper not run yet: {len(missing)}", ""]
    lines += ["`lotnet paper` prints the command of each. Numbers are depths of LipConvnet."]
    for table, kinds in tables.items():
        lines += ["", f"{TITLES[table]} (`lotnet paper {table}`):", ""]
        lines += [f"* {kind}: {', '.join(names)}" for kind, names in kinds.items()]
    return lines
