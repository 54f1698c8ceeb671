"""The charts of a report: the certified curve, and the curves of training."""

import math
from typing import Any

import numpy as np

from lotnet.certification.plain import RADII, in_255ths
from lotnet.report.chart import Axes, Chart, Series, chart
from lotnet.report.collect import RunData
from lotnet.report.tables import PAPER, percent

_TAIL = 0.005
"""The curve and its slider end where less than this share of images is certified."""


def slider_steps(runs: list[RunData]) -> int:
    """Length of the slider in 255ths: to a little beyond the start of `_TAIL`, and at least to the paper's radii."""
    ends = [*PAPER]
    for run in runs:
        held = np.sort(np.where(run.correct, run.radii, 0.0))
        ends.append(float(held[-1 - int(_TAIL * len(held))]))
    return math.ceil(255 * 1.04 * max(ends))


def certified_curve(runs: list[RunData], steps: int) -> Chart:
    lines: list[Series] = []
    marks: list[Series] = []
    for slot, run in enumerate(runs):
        lines.append((slot, legend(run, runs), [(k / 255, run.certified(k / 255)) for k in range(steps + 1)]))
        if run.paper is not None:
            known = {radius: getattr(run.paper, name) for radius, name in {0.0: "clean", **PAPER}.items()}
            points = [(radius, share / 100) for radius, share in known.items() if share is not None]
            marks.append((slot, f"the paper's {run.paper.model}, {run.paper.conv}", points))
    split = runs[0].certification.split
    axes = Axes(
        x_title="certified l2 radius, pixels in [0, 1]",
        y_title=f"certified accuracy, % of {split} images",
        x_range=(0.0, steps / 255),
        percent=True,
        guides=RADII,
    )
    return chart("curve", axes, lines, marks)


def legend(run: RunData, runs: list[RunData]) -> str:
    """The name of a line: the run, and what kind of network it is."""
    return f"{run.name}: {run.title}" if len(runs) > 1 else run.title


def what_to_see(runs: list[RunData]) -> str:
    """A sentence about the certified curve."""
    if len(runs) == 1:
        (run,) = runs
        if not run.correct.any():
            return "No image is classified correctly."
        half = float(np.median(run.radii[run.correct]))
        return (
            f"The line starts at {percent(run.certified(0))}: all images with a correct prediction and a proof. Half "
            f"of the correctly classified images are certified up to radius {half:.3f} ({255 * half:.0f}/255)."
        )
    ahead = [_ahead(runs, radius) for radius in RADII]
    return f"The higher line is better. {' '.join(ahead)}"


def _ahead(runs: list[RunData], radius: float) -> str:
    first, second = sorted(runs, key=lambda run: -run.certified(radius))[:2]
    apart = 100 * (first.certified(radius) - second.certified(radius))
    if not apart:
        return f"At {in_255ths(radius)}, {first.name} and {second.name} are equal."
    return f"At {in_255ths(radius)}, {first.name} is ahead by {apart:.1f} points."


def training_charts(runs: list[RunData]) -> list[Chart]:
    radius = in_255ths(runs[0].config.trainer.radius)
    last = max(record.epoch for run in runs for record in run.metrics)
    wanted = {
        "loss": ("training loss, mean over images", lambda record: record.loss),
        "clean": ("clean accuracy, % of validation images", lambda record: _share(record.clean)),
        "certified": (
            f"certified at {radius}, % of validation images",
            lambda record: _share(record.certified.get(radius)),
        ),
    }
    made = []
    for key, (title, value) in wanted.items():
        lines = [
            (slot, run.name, [(float(record.epoch), float(value(record))) for record in run.metrics])
            for slot, run in enumerate(runs)
        ]
        axes = Axes("epoch", title, (0.0, float(last)), percent=key != "loss", whole=True)
        made.append(chart(key, axes, lines))
    return made


def _share(value: float | None) -> float:
    return math.nan if value is None else value


def values(charts: list[Chart]) -> dict[str, Any]:
    """Values that a chart shows under the pointer. JSON has no NaN, so gaps are null."""
    return {
        made.key: {"x": made.axes.x_range, "y": made.y_range}
        if made.key == "curve"  # which is counted from the certificates
        else {
            "x": made.axes.x_range,
            "y": made.y_range,
            "percent": made.axes.percent,
            "lines": [
                {
                    "slot": line.slot,
                    "name": line.name,
                    "points": [[x, round(y, 6) if math.isfinite(y) else None] for x, y in line.points],
                }
                for line in made.lines
            ],
        }
        for made in charts
    }
