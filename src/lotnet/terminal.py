"""A console for text with names in it: names of runs, files and classes are data, not markup."""

from typing import Any

from rich.console import Console as RichConsole
from rich.text import Text

from lotnet.errors import printable


class Console(RichConsole):
    """Rich's console, in which square brackets and emoji codes mean nothing, and control characters are escaped."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(printable(text, keep="\n"), **settings)
