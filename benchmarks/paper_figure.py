"""Our accuracy beside the paper's: python benchmarks/paper_figure.py draws results/paper.png from the results there.

One group for each network of the paper that was run. Filled markers are ours, hollow ones the paper's.
"""

from pathlib import Path

from lotnet.analysis.plotting import figure, png
from lotnet.paper import results
from lotnet.paper.tables import ACCURACIES, Row

MARKERS = {
    "clean": ("o", "#333333"),
    "cert_36": ("s", "#0072b2"),
    "cert_72": ("^", "#009e73"),
    "cert_108": ("D", "#d55e00"),
}
"""Told apart by shape as well as by colour."""
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tinyimagenet": "TinyImageNet"}


def label(row: Row, result: results.Result) -> str:
    recipe = "CReg, HH" if row.creg_hh else "cross-entropy"
    return f"{DATA[row.dataset]}\n{row.model} {row.conv}\n{recipe}\n{result.epochs} epochs"


def main(folder: Path = Path("results")) -> None:
    found = {
        row: result for row, result in results.measured(results.load_all(folder)).items() if row.table.startswith("sup")
    }
    order = sorted(found, key=lambda row: (row.dataset, row.creg_hh, row.conv, len(row.model), row.model))
    picture = figure(1.35 * len(order) + 2.2, 4.4)
    axes = picture.subplots()
    for key, (marker, color) in MARKERS.items():
        ours = [found[row].percentages()[key] for row in order]
        theirs = [getattr(row, key) for row in order]
        name = "clean" if key == "clean" else f"certified at {ACCURACIES[key]}"
        places = range(len(order))
        axes.plot([x - 0.12 for x in places], theirs, marker, color=color, markerfacecolor="white", markersize=8)
        axes.plot([x + 0.12 for x in places], ours, marker, color=color, markersize=8, label=name)
    axes.plot([], [], "o", color="#777777", markerfacecolor="white", label="paper (200 epochs)")
    axes.set_xticks(range(len(order)), [label(row, found[row]) for row in order], fontsize=8)
    axes.set(ylabel="test images (%)", ylim=(0, 90), xlim=(-0.6, len(order) - 0.4))
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    (folder / "paper.png").write_bytes(png(picture))


if __name__ == "__main__":
    main()
