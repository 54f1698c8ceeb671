"""Figures as PNG files, readable at a width of 600 pixels and in grey.

Only this module imports matplotlib. Without matplotlib, `figure` raises ImportError.
"""

import io
import textwrap
from typing import Any

from lotnet.palette import Style

WIDTH = 7.2
"""Width of a whole figure in inches. Text of 9 points is still readable when a page shows it 600 pixels wide."""
SMALL = 9
"""Font size of what is not an axis label, in points."""
GRID = {"color": "#dddddd", "linewidth": 0.6}


def figure(width: float, height: float) -> Any:
    """An empty figure of this size in inches. It opens no window and sets no global state."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))


def put_title(figure: Any, text: str) -> None:
    """Put a title over the whole figure, on as many lines as it needs."""
    figure.suptitle(heading(text, 84), fontsize=SMALL + 1)


def line(style: Style) -> dict[str, Any]:
    """How matplotlib draws a line in a style of the palette."""
    return {"color": style.light, "linestyle": (0, style.dash) if style.dash else "-"}


def plain_axes(axes: Any) -> None:
    """Two spines and a faint grid behind the data."""
    axes.grid(**GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def shades(count: int) -> list[Any]:
    """Colors from dark to light, for things that have an order. Their order is kept in grey."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.85 * n / max(count - 1, 1)) for n in range(count)]


def round_levels(low: float, high: float, most: int) -> list[float]:
    """Round numbers that cover the range from low to high in at most `most` steps."""
    from matplotlib.ticker import MaxNLocator

    values = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high if high > low else low + 1)
    return [float(value) for value in values]


def heading(name: str, width: int) -> str:
    """Wrap a name, so that the path of a run does not run into the next panel."""
    return "\n".join(textwrap.wrap(name, width))


def png(figure: Any) -> bytes:
    """The content of a PNG file."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
