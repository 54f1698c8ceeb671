"""Figures as PNG files.

Needs matplotlib, which is imported here and nowhere else: the caller turns its absence into a sentence.
"""

import io
import textwrap
from typing import Any


def figure(width: float, height: float) -> Any:
    """An empty figure, in inches; no window and no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def heading(name: str, width: int) -> str:
    """A name over as many lines as it takes: the path of a run would run into the next square."""
    return "\n".join(textwrap.wrap(name, width))


def png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
