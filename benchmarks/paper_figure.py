"""Our accuracy beside the paper's: python benchmarks/paper_figure.py draws a figure for each table into results/.

One line for each network of the paper that was run. Hollow markers are the paper's, and filled ones below them are
ours. Another figure shows students of self-training against the number of unlabeled images.
"""

from pathlib import Path
from typing import Any

from lotnet.analysis.plotting import GRID, SMALL, WIDTH, figure, line, png
from lotnet.palette import MEASURES
from lotnet.paper import comparisons, results
from lotnet.paper.results_page import SELF_TRAINING_FIGURE, figure_of, reading_order
from lotnet.paper.tables import ACCURACIES, EPOCHS, TITLES, Row
from lotnet.paper.titles import DATA

NAMES = {key: f"certified at {name}" for key, name in ACCURACIES.items()} | {
    "clean": "clean",
    "pgd_linf": "attacked, l-infinity 8/255",
}


def label(row: Row, result: results.Result) -> str:
    unusual = f", {row.variant}" if row.variant else ""
    return f"{row.model}, {row.conv}{unusual}\n{DATA[row.dataset]}, {result.epochs} epochs"


def draw_table(table: str, found: dict[Row, results.Result]) -> Any:
    """The figure of one table: the paper's figures above ours, a line of markers for each network."""
    order = reading_order(found)
    picture = figure(WIDTH, 0.62 * len(order) + 1.7)
    axes = picture.subplots()
    for key, style in MEASURES.items():
        pairs = [(getattr(row, key), found[row].percentages().get(key)) for row in order]
        places = [place for place, pair in enumerate(pairs) if None not in pair]
        if not places:
            continue
        theirs, ours = ([pairs[place][side] for place in places] for side in (0, 1))
        look = {"marker": style.marker, "color": style.light, "markersize": 8, "linestyle": ""}
        axes.plot(theirs, [y - 0.16 for y in places], markerfacecolor="white", **look)
        axes.plot(ours, [y + 0.16 for y in places], label=NAMES[key], **look)
    axes.set_yticks(range(len(order)), [label(row, found[row]) for row in order], fontsize=SMALL)
    axes.set(xlim=(0, 90), ylim=(len(order) - 0.5, -0.5))
    axes.set_xlabel(f"test images (%); hollow: the paper, {EPOCHS} epochs; filled: lotnet")
    axes.set_title(TITLES[table], fontsize=SMALL + 1)
    axes.grid(axis="x", **GRID)
    for y in range(1, len(order)):
        axes.axhline(y - 0.5, **GRID)
    return finish(picture, columns=4)


def draw_self_training(found: list[comparisons.SelfTrained]) -> Any:
    """Accuracy against the number of unlabeled images, one panel for each network. At 0 is the supervised network."""
    networks: dict[str, list[comparisons.SelfTrained]] = {}
    for item in found:
        networks.setdefault(f"LipConvnet-{item.student.config['model']['depth']}", []).append(item)
    picture = figure(WIDTH, 4)
    panels = picture.subplots(1, len(networks), squeeze=False, sharey=True)[0]
    for axes, (network, items) in zip(panels, networks.items(), strict=True):
        for key in ACCURACIES:
            style = MEASURES[key]
            places = [0, *(item.images / 1000 for item in items)]
            values = [items[0].baseline[key], *(item.student.percentages()[key] for item in items)]
            axes.plot(places, values, marker=style.marker, markersize=7, label=NAMES[key], **line(style))
        axes.set(xlabel="unlabeled images (thousands)", ylim=(0, 90))
        axes.set_title(network, fontsize=SMALL + 1)
        axes.grid(axis="y", **GRID)
    panels[0].set_ylabel("test images (%)")
    return finish(picture, columns=4)


def finish(picture: Any, columns: int) -> Any:
    """One legend for all panels, below them."""
    for panel in picture.axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_axisbelow(True)
    handles, names = picture.axes[0].get_legend_handles_labels()
    picture.legend(handles, names, frameon=False, fontsize=SMALL, loc="outside lower center", ncols=columns)
    return picture


def main(folder: Path = Path("results")) -> None:
    everything = results.load_all(folder)
    done = results.measured(everything)
    for table in dict.fromkeys(row.table for row in done):
        found = {row: result for row, result in done.items() if row.table == table}
        (folder / figure_of(table)).write_bytes(png(draw_table(table, found)))
    students = comparisons.with_all_labels(comparisons.selftrained(everything))
    if students:
        (folder / SELF_TRAINING_FIGURE).write_bytes(png(draw_self_training(students)))


if __name__ == "__main__":
    main()
