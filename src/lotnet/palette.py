"""Colors, dashes and markers of lines: the same for the same method in the report, the docs and the results.

Each line has a color for white pages and one for dark pages. Their contrast to these pages is at least 4.5, as level AA
of the Web Content Accessibility Guidelines asks for text. In grey, lines are told apart by their dashes and markers;
those of LOT, SOC, Cayley and BCOP also by their lightness. No color stands for two things.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle


@dataclass(frozen=True)
class Style:
    """How a line is drawn."""

    light: str
    """Color on white."""
    dark: str
    """Color on a dark page."""
    dash: tuple[int, ...]
    """Lengths of dashes and gaps in line widths; () is a solid line."""
    marker: str
    """Marker, by its name in matplotlib."""


METHODS: dict[str, Style] = {
    "lot": Style("#005f9c", "#6db2fe", (), "o"),
    "soc": Style("#c24b00", "#ffb28d", (4, 2), "s"),
    "cayley": Style("#025235", "#8bedbd", (1, 1), "^"),
    "bcop": Style("#580e6f", "#c578db", (6, 2, 1, 2), "D"),
    "eco": Style("#766801", "#ead25c", (8, 3), "v"),
    "spectral": Style("#a4054d", "#fe98b1", (3, 1, 1, 1, 1, 1), "P"),
    "rko": Style("#02444d", "#05b1c5", (2, 3), "X"),
}
"""Layers, by the names of `lotnet.parametrizations`."""

LOSSES: dict[str, Style] = {
    "cross-entropy": Style("#595959", "#a6a6a6", (), "o"),
    "creg": Style("#1966c9", "#a6b9ff", (4, 2), "s"),
    "offset": Style("#764c00", "#ffc16d", (1, 1), "^"),
    "emma": Style("#920123", "#fe8988", (6, 2, 1, 2), "D"),
    "annealing": Style("#b53e90", "#ffade0", (8, 3), "v"),
    "emma-annealing": Style("#194200", "#aeee82", (3, 1, 1, 1, 1, 1), "P"),
}
"""Losses, by the names of `lotnet.losses`. For lines that differ only in their loss."""

MEASURES: dict[str, Style] = {
    "clean": Style("#6d6d6d", "#a0a0a0", (), "o"),
    "cert_36": Style("#087f82", "#90f2f5", (4, 2), "s"),
    "cert_72": Style("#045d6c", "#55d1ea", (1, 1), "^"),
    "cert_108": Style("#013546", "#02a8d6", (6, 2, 1, 2), "D"),
    "pgd_linf": Style("#7349aa", "#c695fe", (8, 3), "v"),
}
"""What is counted, by the columns of the paper's tables. A larger radius is darker."""

SPARE: tuple[Style, ...] = (
    Style("#242424", "#e8e8e8", (12, 2), "*"),
    Style("#d21487", "#ffa7ce", (1, 3), "<"),
    Style("#036d68", "#89e7e0", (8, 2, 1, 2, 1, 2), ">"),
    Style("#5e3700", "#d09554", (5, 1), "p"),
)
"""For lines of a method that is drawn already, or that is not in the table. They stand for no method."""


def styles(lines: Sequence[tuple[str, str]]) -> list[Style]:
    """The styles of lines in one chart, each given by the names of its method and its loss.

    Lines of one method and different losses have the colors of their losses. Otherwise the first line of each method
    has the color of the method. Every other line has a spare color.
    """
    methods, losses = {method for method, _ in lines}, {loss for _, loss in lines}
    if len(lines) > 1 and len(methods) == 1 and len(losses) == len(lines) and losses <= LOSSES.keys():
        return [LOSSES[loss] for _, loss in lines]
    left, spare = dict(METHODS), cycle(SPARE)
    return [left.pop(method) if method in left else next(spare) for method, _ in lines]
