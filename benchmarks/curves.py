"""Certified accuracy at every radius: python benchmarks/curves.py NAME... draws results in results/curves.png.

Lines are our certified accuracy (claim B: proved for the float64 program). Rings are the paper's certified accuracy of
the same network, which is published at four radii only.
"""

import sys
from pathlib import Path
from typing import Any

from lotnet.analysis.plotting import SMALL, WIDTH, figure, heading, line, plain_axes, png
from lotnet.certification.plain import RADII, in_255ths
from lotnet.config import RunConfig
from lotnet.config.settings import kind_of
from lotnet.palette import Style, styles
from lotnet.paper import results
from lotnet.paper.titles import data_title
from lotnet.report.tables import PAPER

END = 1.0
"""Radius at the right edge: almost no image is certified beyond it."""


def main(names: list[str], folder: Path = Path("results")) -> None:
    found = named(names, folder)
    picture = figure(WIDTH, 4.6)
    axes = picture.subplots()
    for result, style in looks(found):
        shares = [100 * share for share in result.summary.curve["certified"]]
        label = heading(results.title(result), 52)
        axes.plot(result.summary.curve["radius"], shares, linewidth=1.8, label=label, **line(style))
        row = results.paper_row(result)
        if row is not None:
            at = {radius: getattr(row, column) for radius, column in {0.0: "clean", **PAPER}.items()}
            ring = {"color": style.light, "markerfacecolor": "white", "markersize": 7, "clip_on": False}
            loss = "CReg loss" if row.creg_hh else "cross-entropy"
            axes.plot(at.keys(), at.values(), "o", label=f"the paper: {row.model}, {row.conv}, {loss}", **ring)
    data = {RunConfig.from_dict(result.config, result.name).data.name for result in found}
    radius_axes(axes, " and ".join(map(data_title, sorted(data))))
    axes.set(xlim=(0, END), ylim=(0, 80))
    (folder / "curves.png").write_bytes(png(picture))


def named(names: list[str], folder: Path) -> list[results.Result]:
    """The results of these names. Exits with a sentence if there is none, or one is not there."""
    known = {result.name: result for result in results.load_all(folder)}
    missing = [name for name in names if name not in known]
    if missing or not names:
        wrong = ", ".join(missing) or "nothing"
        print(f"{wrong} cannot be drawn: name some of {', '.join(known)}", file=sys.stderr)
        sys.exit(2)
    return [known[name] for name in names]


def looks(found: list[results.Result]) -> list[tuple[results.Result, Style]]:
    """Each result with the style of its line."""
    configs = [RunConfig.from_dict(result.config, result.name) for result in found]
    chosen = styles([(config.model.parametrization, kind_of(config.loss)) for config in configs])
    return list(zip(found, chosen, strict=True))


def radius_axes(axes: Any, data: str) -> None:
    """Label the axes of a curve of certified accuracy: radii as numbers below, and in 255ths above."""
    axes.set(xlabel="l2 radius (pixels in [0, 1])", ylabel=f"certified test images of {data} (%)")
    plain_axes(axes)
    above = axes.secondary_xaxis("top")
    above.spines["top"].set_visible(False)
    above.set_xticks(list(RADII), [in_255ths(radius) for radius in RADII])
    axes.legend(frameon=False, fontsize=SMALL)


if __name__ == "__main__":
    main(sys.argv[1:])
