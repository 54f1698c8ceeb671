"""Our certified accuracy and the leaders': python benchmarks/beyond_figure.py NAME... draws results/beyond.png.

Lines are our results of these names at every radius (claim B: proved for the float64 program). Markers are published
figures, which exist at four radii (benchmarks/leaders.yaml).
"""

import sys
from itertools import count
from pathlib import Path

import yaml

from curves import looks, named, radius_axes
from lotnet.analysis.plotting import WIDTH, figure, heading, line, png
from lotnet.certification.plain import RADII
from lotnet.palette import METHODS, SPARE
from lotnet.paper import results

LEADERS = Path(__file__).with_name("leaders.yaml")
END = 150 / 255


def main(names: list[str], folder: Path = Path("results")) -> None:
    picture = figure(WIDTH, 4.8)
    axes = picture.subplots()
    for result, style in looks(named(names, folder)):
        shares = [100 * share for share in result.summary.curve["certified"]]
        label = heading(f"ours: {results.title(result)}", 44)
        axes.plot(result.summary.curve["radius"], shares, linewidth=1.8, label=label, **line(style))
    spare = count()
    for leader in yaml.safe_load(LEADERS.read_text()):
        style = METHODS[leader["method"]] if "method" in leader else SPARE[next(spare)]
        places = dict(zip((0.0, *RADII), leader["accuracy"], strict=True))
        options = {"markerfacecolor": "none", "markersize": 8, "clip_on": False}  # figures overlap
        axes.plot(places.keys(), places.values(), style.marker, color=style.light, label=leader["name"], **options)
    radius_axes(axes, "CIFAR-10")
    axes.set(xlim=(0, END), ylim=(20, 90))
    (folder / "beyond.png").write_bytes(png(picture))


if __name__ == "__main__":
    main(sys.argv[1:])
