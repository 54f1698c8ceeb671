"""Pages of results whose sections come from different benchmarks."""

import re
from pathlib import Path


def write_section(page: Path, title: str, text: str) -> None:
    """Replace the section `## title` of a page, or append it. The other sections stay as they are."""
    old = page.read_text() if page.is_file() else ""
    section = f"## {title}\n\n{text.strip()}\n"
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", old, re.DOTALL | re.MULTILINE)
    if found:
        rest = old[found.end() :]
        new = old[: found.start()] + section + ("\n" + rest if rest else "")
    else:
        new = (old.rstrip() + "\n\n" if old else "") + section
    page.write_text(new)
