"""The plot of results/speed.md: what a batch costs with each layer. `speed_report.py` draws it."""

from typing import Any

from lotnet.analysis.plotting import GRID, SMALL, WIDTH, figure, png
from lotnet.palette import METHODS
from lotnet.paper.titles import layer

ALGORITHM = "the paper's LOT"
LAYERS = {
    "plain": ("plain convolution", {"color": "#8c8c8c"}),
    "lot": ("LOT", {"color": METHODS["lot"].light}),
    "soc": (layer("soc"), {"color": METHODS["soc"].light}),
    "bcop": (layer("bcop"), {"color": METHODS["bcop"].light}),
    "literal": (ALGORITHM, {"facecolor": "white", "edgecolor": METHODS["lot"].light, "hatch": "///"}),
}
"""Kind in the record: name, and how its bar is drawn. Cayley's layer has no CUDA graph, so its time is another one."""


def draw(measured: dict[str, Any]) -> bytes:
    """Bars of the training step and of evaluation, in milliseconds, one group for each network."""
    panels = {
        "training step, TF32": [*measured.get("wide", []), *measured.get("peers", [])],
        "evaluation, float32": measured.get("evaluation", []),
    }
    drawn = {title: found for title, rows in panels.items() if (found := _groups(rows))}
    bars = {title: sum(len(times) + 1 for times in groups.values()) for title, groups in drawn.items()}
    picture = figure(WIDTH, 0.26 * sum(bars.values()) + 0.8 * len(bars))
    places = picture.subplots(len(drawn), squeeze=False, height_ratios=list(bars.values()))[:, 0]
    for axes, (title, groups) in zip(places, drawn.items(), strict=True):
        _panel(axes, groups)
        axes.set_title(title, fontsize=SMALL + 1)
        axes.set_xlabel(f"milliseconds for a batch of {measured['about']['batch']} on one {measured['about']['gpu']}")
    return png(picture)


def _groups(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Network: kind: milliseconds, for the networks of which more than LOT and plain convolutions were measured."""
    groups: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["kind"] in LAYERS and "graph_ms" in row:
            groups.setdefault(row["network"], {})[row["kind"]] = row["graph_ms"]
    return {network: times for network, times in groups.items() if len(times) > 2}


def _panel(axes: Any, groups: dict[str, dict[str, float]]) -> None:
    labels, y = {}, 0
    for network, times in groups.items():
        labels[y] = network.removesuffix(", 32 channels")
        for kind in [kind for kind in LAYERS if kind in times]:
            y += 1
            name, look = LAYERS[kind]
            bar = axes.barh(y, times[kind], height=0.8, **look)
            axes.bar_label(bar, fmt="%.3g", fontsize=SMALL, padding=3)
            labels[y] = name
        y += 1
    axes.set_yticks(list(labels), list(labels.values()), fontsize=SMALL)
    for tick, name in zip(axes.get_yticklabels(), labels.values(), strict=True):
        tick.set_fontweight("bold" if name.startswith("LipConvnet") else "normal")
    axes.set(ylim=(y - 0.4, -0.6))
    axes.margins(x=0.08)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", **GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
