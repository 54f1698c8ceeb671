"""Certified accuracy at every radius: python benchmarks/curves.py NAME... draws results in results/curves.png.

Lines are ours (claim B). A ring is the paper's figure for the same network; only its four radii are published.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from lotnet import results

COLOURS = ("#0a67ae", "#c25000", "#00805d", "#a8457f", "#6d5a00", "#4a4a4a")
END = 1.0
"""Radius at the right edge: beyond it next to nothing is certified."""


def main(names: list[str], folder: Path = Path("results")) -> None:
    known = {result.name: result for result in results.load_all(folder)}
    missing = [name for name in names if name not in known]
    if missing or not 0 < len(names) <= len(COLOURS):
        wrong = ", ".join(missing) or f"{len(names)} results"
        print(f"{wrong} cannot be drawn: name one to {len(COLOURS)} of {', '.join(known)}", file=sys.stderr)
        sys.exit(2)
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    for name, colour in zip(names, COLOURS, strict=False):
        curve = known[name].summary["curve"]
        axes.plot(curve["radius"], [100 * share for share in curve["certified"]], color=colour, label=name)
        row = results.paper_row(known[name])
        if row is not None:
            shares = {0: row.clean, 36: row.cert_36, 72: row.cert_72, 108: row.cert_108}
            at = {k / 255: share for k, share in shares.items() if share is not None}
            axes.plot(at.keys(), at.values(), "o", color=colour, markerfacecolor="white", markersize=6, clip_on=False)
    axes.set(xlabel="l2 radius, pixels in [0, 1]", ylabel="certified test images, %", xlim=(0, END), ylim=(0, 80))
    above = axes.secondary_xaxis("top")
    above.spines["top"].set_visible(False)
    above.set_xticks([k / 255 for k in (36, 72, 108)], ["36/255", "72/255", "108/255"])
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(folder / "curves.png", dpi=120)


if __name__ == "__main__":
    main(sys.argv[1:])
