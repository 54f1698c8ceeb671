"""Figures as PNG files.

Only this module imports matplotlib. Without matplotlib, `figure` raises ImportError.
"""

import io
import textwrap
from typing import Any

from lotnet.errors import printable


def figure(width: float, height: float) -> Any:
    """An empty figure of this size in inches. It opens no window and sets no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def heading(name: str, width: int) -> str:
    r"""Wrap a name, so that the path of a run does not run into the next panel, and escape it.

    matplotlib would read the text between two dollars as a formula.

    >>> heading("a$b$", 10)
    'a\\$b\\$'
    """
    return "\n".join(textwrap.wrap(printable(name), width)).replace("$", r"\$")


def png(figure: Any) -> bytes:
    """The content of a PNG file."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
