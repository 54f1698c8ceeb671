"""Figures as PNG files.

Only this module imports matplotlib. Without matplotlib, `figure` raises ImportError.
"""

import io
import textwrap
from typing import Any


def figure(width: float, height: float) -> Any:
    """An empty figure of this size in inches. It opens no window and sets no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def heading(name: str, width: int) -> str:
    """Wrap a name, so that the path of a run does not run into the next panel."""
    return "\n".join(textwrap.wrap(name, width))


def png(figure: Any) -> bytes:
    """The content of a PNG file."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
