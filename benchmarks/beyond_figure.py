"""Our certified accuracy and the leaders': python benchmarks/beyond_figure.py NAME... draws results/beyond.png.

Lines are our results of these names at every radius (claim B: proved for the float64 program). Markers are published
figures, which exist at four radii (benchmarks/leaders.yaml).
"""

import sys
from pathlib import Path

import yaml

from lotnet.analysis.plotting import figure, png
from lotnet.certification.plain import RADII, in_255ths
from lotnet.paper import results

LEADERS = Path(__file__).with_name("leaders.yaml")
MARKERS = (("o", "#555555"), ("s", "#0072b2"), ("^", "#d55e00"), ("D", "#cc79a7"))
"""Told apart by shape as well as by colour."""
COLORS = ("#009e73", "#000000", "#56b4e9")
"""Of our lines."""
END = 150 / 255


def main(names: list[str], folder: Path = Path("results")) -> None:
    known = {result.name: result for result in results.load_all(folder)}
    missing = [name for name in names if name not in known]
    if missing or not 1 <= len(names) <= len(COLORS):
        wrong = ", ".join(missing) or f"{len(names)} results"
        print(f"{wrong} cannot be drawn: name up to {len(COLORS)} of {', '.join(known)}", file=sys.stderr)
        sys.exit(2)
    picture = figure(7.6, 4.6)
    axes = picture.subplots()
    for name, color in zip(names, COLORS, strict=False):
        curve = known[name].summary.curve
        shares = [100 * share for share in curve["certified"]]
        axes.plot(curve["radius"], shares, color=color, label=f"ours: {results.title(known[name])}")
    for leader, (marker, color) in zip(yaml.safe_load(LEADERS.read_text()), MARKERS, strict=True):
        places = dict(zip((0.0, *RADII), leader["accuracy"], strict=True))
        options = {"markerfacecolor": "white", "markersize": 7, "clip_on": False}
        axes.plot(places.keys(), places.values(), marker, color=color, label=leader["name"], **options)
    axes.set(xlabel="l2 radius, pixels in [0, 1]", ylabel="certified test images of CIFAR-10 (%)")
    axes.set(xlim=(0, END), ylim=(20, 90))
    above = axes.secondary_xaxis("top")
    above.spines["top"].set_visible(False)
    above.set_xticks(list(RADII), [in_255ths(radius) for radius in RADII])
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    (folder / "beyond.png").write_bytes(png(picture))


if __name__ == "__main__":
    main(sys.argv[1:])
