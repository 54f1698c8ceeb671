"""Figures as PNG files.

Needs matplotlib, which is imported here and nowhere else: the caller turns its absence into a sentence.
"""

import io
from typing import Any


def figure(width: float, height: float) -> Any:
    """An empty figure, in inches; no window and no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
