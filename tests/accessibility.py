"""What axe-core finds wrong with a page: labels, roles, contrast, structure.

Axe-core is a part of the package axe-playwright-python, so no test downloads it.
"""

from typing import Any

import pytest

SCHEMES = ("light", "dark")
_NOT_JUDGED = {"shortTextContent", "nonBmp", "elmPartiallyObscured"}
"""Axe does not judge the contrast of single characters, of lines that are drawn by characters, and of texts at the edge
of a table that is scrolled. Other texts beside them have the same style."""
_PREPARE = """() => {
  for (const part of document.querySelectorAll("details")) part.open = true;
  for (const part of document.querySelectorAll(".scroll")) part.style.backgroundImage = "none";
}"""
"""Everything is looked at. The shadows at the edges of tables are gradients, over which axe judges no contrast."""


def serious(page: Any, schemes: tuple[str, ...] = SCHEMES) -> list[str]:
    """Findings of impact serious or critical in each color scheme, as one line each; none for an accessible page.

    A text whose contrast axe cannot judge is a finding too.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install -e .[dev]").Axe()
    page.evaluate(_PREPARE)
    found = []
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        results = axe.run(page).response
        assert {"color-contrast", "document-title"} <= {rule["id"] for rule in results["passes"]}, "axe saw no page"
        for rule in results["violations"]:
            if rule["impact"] in ("serious", "critical"):
                found += [f"{scheme}: {rule['help']}: {node['html'][:150]}" for node in rule["nodes"]]
        for rule in results["incomplete"]:
            for node in rule["nodes"] if rule["id"] == "color-contrast" else ():
                if node["any"][0]["data"].get("messageKey") not in _NOT_JUDGED:
                    found.append(f"{scheme}: {node['any'][0]['message']}: {node['html'][:150]}")
    return found
