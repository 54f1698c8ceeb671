"""Line charts for the page: SVG paths in a square of 1000 by 1000, and ticks in percent of its sides.

The page stretches the square to its width.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SIDE = 1000
_MOST_POINTS = 400
"""Most points of a line. A screen shows no more."""

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
class Chart:
    """Lines on one pair of axes, with the paper's numbers as single points (`marks`)."""

    key: str
    title: str
    x_title: str
    x_range: Point
    y_range: Point
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[Line]
    marks: list[Line]
    percent: bool
    """Whether values are shares, shown in percent."""


def chart(
    key: str,
    title: str,
    x_title: str,
    lines: Sequence[Series],
    *,
    x_range: Point,
    percent: bool,
    marks: Sequence[Series] = (),
) -> Chart:
    """Lay out a chart. A line is broken where a value is not finite.

    The y axis starts at 0 for shares, and ends at a tick.
    """
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
        title=title,
        x_title=x_title,
        x_range=x_range,
        y_range=y_range,
        x_ticks=_ticks(x_range, 8, percent=False),
        y_ticks=_ticks(y_range, 5, percent=percent),
        lines=drawn(lines, _path),
        marks=drawn(marks, _dots),
        percent=percent,
    )


def tick_step(span: float, most: int = 5) -> float:
    """The smallest 1, 2 or 5 times a power of ten such that at most `most` steps fill the span."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power * most >= span * (1 - 1e-9))


def _ticks(limits: Point, most: int, percent: bool) -> list[Tick]:
    low, high = limits
    step = tick_step(high - low, most)
    count = math.floor((high - low) / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step * (100 if percent else 1)) + 1e-9))
    ticks = []
    for n in range(math.ceil(low / step - 1e-9), math.ceil(low / step - 1e-9) + count + 1):
        value = n * step
        if low - 1e-9 * step <= value <= high + 1e-9 * step:
            text = f"{100 * value:.{digits}f}%" if percent else f"{value:.{digits}f}"
            ticks.append(Tick(round(100 * (value - low) / (high - low), 3), text))
    return ticks


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
