"""Our accuracy beside the paper's: python benchmarks/paper_figure.py draws a figure for each table into results/.

One group for each network of the paper that was run. Filled markers are ours, hollow ones the paper's. Another figure
shows students of self-training against the number of unlabeled images.
"""

from pathlib import Path
from typing import Any

from lotnet.analysis.plotting import figure, png
from lotnet.paper import comparisons, results
from lotnet.paper.results_page import SELF_TRAINING_FIGURE, figure_of
from lotnet.paper.tables import ACCURACIES, TITLES, Row

MARKERS = {
    "clean": ("o", "#333333"),
    "cert_36": ("s", "#0072b2"),
    "cert_72": ("^", "#009e73"),
    "cert_108": ("D", "#d55e00"),
    "pgd_linf": ("v", "#cc79a7"),
}
"""Told apart by shape as well as by color."""
NAMES = {key: f"certified at {name}" for key, name in ACCURACIES.items()} | {
    "clean": "clean",
    "pgd_linf": "under PGD, l-infinity 8/255",
}
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tinyimagenet": "TinyImageNet"}


def label(row: Row, result: results.Result) -> str:
    recipe = row.variant or ("CReg, HH" if row.creg_hh else "cross-entropy")
    return f"{DATA[row.dataset]}\n{row.model} {row.conv}\n{recipe}\n{result.epochs} epochs"


def draw_table(table: str, found: dict[Row, results.Result]) -> Any:
    """The figure of one table: ours beside the paper's, one group for each network."""
    order = sorted(found, key=lambda row: (row.dataset, row.conv, len(row.model), row.model, row.variant))
    picture = figure(max(1.35 * len(order) + 2.6, 5), 4.4)
    axes = picture.subplots()
    for key, (marker, color) in MARKERS.items():
        pairs = [(getattr(row, key), found[row].percentages().get(key)) for row in order]
        places = [place for place, pair in enumerate(pairs) if None not in pair]
        if not places:
            continue
        theirs, ours = ([pairs[place][side] for place in places] for side in (0, 1))
        axes.plot([x - 0.12 for x in places], theirs, marker, color=color, markerfacecolor="white", markersize=8)
        axes.plot([x + 0.12 for x in places], ours, marker, color=color, markersize=8, label=NAMES[key])
    axes.plot([], [], "o", color="#777777", markerfacecolor="white", label="paper (200 epochs)")
    axes.set_xticks(range(len(order)), [label(row, found[row]) for row in order], fontsize=8)
    axes.set(ylabel="test images (%)", ylim=(0, 90), xlim=(-0.6, len(order) - 0.4))
    axes.set_title(TITLES[table], fontsize=10)
    return finish(picture, axes)


def draw_self_training(found: list[comparisons.SelfTrained]) -> Any:
    """Accuracy against the number of unlabeled images, one panel for each network. At 0 is the supervised network."""
    networks: dict[str, list[comparisons.SelfTrained]] = {}
    for item in found:
        networks.setdefault(f"LipConvnet-{item.student.config['model']['depth']}", []).append(item)
    picture = figure(4 * len(networks) + 2.2, 4)
    panels = picture.subplots(1, len(networks), squeeze=False, sharey=True)[0]
    for axes, (network, items) in zip(panels, networks.items(), strict=True):
        for key in ACCURACIES:
            marker, color = MARKERS[key]
            places = [0, *(item.images / 1000 for item in items)]
            values = [items[0].baseline[key], *(item.student.percentages()[key] for item in items)]
            axes.plot(places, values, marker + "-", color=color, markersize=7, label=NAMES[key])
        axes.set(xlabel="unlabeled images (thousands)", ylim=(0, 90))
        axes.set_title(network, fontsize=10)
    panels[0].set_ylabel("test images (%)")
    return finish(picture, panels[-1])


def finish(picture: Any, axes: Any) -> Any:
    for panel in picture.axes:
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
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
