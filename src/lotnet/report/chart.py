"""Line charts for the page: SVG paths in a square of 1000 by 1000, and ticks in percent of its sides.

The page stretches the square to its width.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lotnet.certification.plain import in_255ths

SIDE = 1000
_MOST_POINTS = 400
"""Most points of a line. A screen shows no more."""

_NAME = 16.0
"""Room for the name of a guide, in percent of the axis, on a phone."""

Point = tuple[float, float]
Series = tuple[int, str, Sequence[Point]]
"""Slot, name and points, from which a `Line` is made."""


@dataclass(frozen=True)
class Line:
    """The line of one run."""

    slot: int
    """Number of the run, which decides the colour."""
    name: str
    points: list[Point]
    path: str


@dataclass(frozen=True)
class Tick:
    percent: float
    text: str


@dataclass(frozen=True)
class Axes:
    """What the axes show."""

    x_title: str
    y_title: str
    x_range: Point
    percent: bool = False
    """Whether values are shares, shown in percent."""
    whole: bool = False
    """Whether only whole numbers make sense on the x axis."""
    guides: Sequence[float] = ()
    """Radii on the x axis that get a vertical line, and their name in 255ths."""


@dataclass(frozen=True)
class Chart:
    """Lines on one pair of axes, with the paper's numbers as single points (`marks`)."""

    key: str
    axes: Axes
    y_range: Point
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    guides: list[Tick]
    lines: list[Line]
    marks: list[Line]


def chart(key: str, axes: Axes, lines: Sequence[Series], marks: Sequence[Series] = ()) -> Chart:
    """Lay out a chart. A line is broken where a value is not finite.

    The y axis starts at 0 for shares, and ends at a tick.
    """
    x_range, percent = axes.x_range, axes.percent
    values = [y for _, _, points in (*lines, *marks) for _, y in points if math.isfinite(y)] or [1.0]
    low = 0.0 if percent else min(values)
    step = tick_step(max(values) - low or 1.0)
    y_range = (step * math.floor(low / step), step * math.ceil(max(values) / step) or step)
    if y_range[0] == y_range[1]:
        y_range = (y_range[0], y_range[1] + step)

    def drawn(items: Sequence[Series], path: Callable[[list[Point]], str]) -> list[Line]:
        made = []
        for slot, name, points in items:
            kept = list(points[:: max(1, math.ceil(len(points) / _MOST_POINTS))])
            kept += points[-1:] if points and kept[-1] != points[-1] else []  # keep the last point
            made.append(Line(slot, name, kept, path([place(point) for point in kept])))
        return made

    def place(point: Point) -> Point:
        (x, y), (left, right), (bottom, top) = point, x_range, y_range
        return SIDE * (x - left) / (right - left), SIDE * (top - y) / (top - bottom)

    return Chart(
        key=key,
        axes=axes,
        y_range=y_range,
        x_ticks=_ticks(x_range, 8, least=1.0 if axes.whole else 0.0),
        y_ticks=_ticks(y_range, 5, percent=percent),
        guides=_guides(axes.guides, x_range),
        lines=drawn(lines, _path),
        marks=drawn(marks, _dots),
    )


def tick_step(span: float, most: int = 5) -> float:
    """The smallest 1, 2 or 5 times a power of ten such that at most `most` steps fill the span."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power * most >= span * (1 - 1e-9))


def _ticks(limits: Point, most: int, percent: bool = False, least: float = 0.0) -> list[Tick]:
    low, high = limits
    step = max(least, tick_step(high - low, most))
    count = math.floor((high - low) / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step * (100 if percent else 1)) + 1e-9))
    ticks = []
    for n in range(math.ceil(low / step - 1e-9), math.ceil(low / step - 1e-9) + count + 1):
        value = n * step
        if low - 1e-9 * step <= value <= high + 1e-9 * step:
            text = f"{100 * value:.{digits}f}%" if percent else f"{value:.{digits}f}"
            ticks.append(Tick(_percent(value, limits), text))
    return ticks


def _guides(values: Sequence[float], limits: Point) -> list[Tick]:
    """Named places. One that is too near to the one before, so that the names would overlap, stays without its name."""
    guides: list[Tick] = []
    named = -math.inf
    for value in sorted(values):
        percent = _percent(value, limits)
        if 0 <= percent <= 100:
            near = percent - named < _NAME
            guides.append(Tick(percent, "" if near else in_255ths(value)))
            named = named if near else percent
    return guides


def _percent(value: float, limits: Point) -> float:
    low, high = limits
    return round(100 * (value - low) / (high - low), 3)


def _path(points: list[Point]) -> str:
    parts = []
    verb = "M"
    for x, y in points:
        if math.isfinite(y):
            parts.append(f"{verb}{x:.4g} {y:.4g}")
        verb = "L" if math.isfinite(y) else "M"
    return "".join(parts)


def _dots(points: list[Point]) -> str:
    """Lines of length zero. With round ends they are dots that stay round when the chart is stretched."""
    return "".join(f"M{x:.4g} {y:.4g}h0" for x, y in points if math.isfinite(y))
