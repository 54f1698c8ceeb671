"""Certified accuracy at every radius: python benchmarks/curves.py NAME... draws results in results/curves.png.

Lines are our certified accuracy (claim B: proved for the float64 program). Circles are the paper's certified accuracy
of the same network, which is published at four radii only.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from lotnet.certification.plain import in_255ths
from lotnet.paper import results
from lotnet.report.tables import PAPER

END = 1.0
"""Radius at the right edge: almost no image is certified beyond it."""


def main(names: list[str], folder: Path = Path("results")) -> None:
    known = {result.name: result for result in results.load_all(folder)}
    missing = [name for name in names if name not in known]
    if missing or not names:
        wrong = ", ".join(missing) or "nothing"
        print(f"{wrong} cannot be drawn: name some of {', '.join(known)}", file=sys.stderr)
        sys.exit(2)
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    for name in names:
        curve = known[name].summary.curve
        (line,) = axes.plot(
            curve["radius"], [100 * share for share in curve["certified"]], label=results.title(known[name])
        )
        row = results.paper_row(known[name])
        if row is not None:
            at = {radius: getattr(row, column) for radius, column in {0.0: "clean", **PAPER}.items()}
            axes.plot(at.keys(), at.values(), "o", color=line.get_color(), markerfacecolor="white", clip_on=False)
    axes.set(xlabel="l2 radius, pixels in [0, 1]", ylabel="certified test images, %", xlim=(0, END), ylim=(0, 80))
    above = axes.secondary_xaxis("top")
    above.spines["top"].set_visible(False)
    above.set_xticks(list(PAPER), [in_255ths(radius) for radius in PAPER])
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(folder / "curves.png", dpi=120)


if __name__ == "__main__":
    main(sys.argv[1:])
