"""Every acronym of docs/glossary.md is expanded where a page uses it first.

The acronyms and their expansions are read from the glossary itself. Code blocks, code spans, pictures, headings and the
addresses of links are not prose and are left out.
"""

import re
from pathlib import Path

import pytest

from pages import FENCE, INDENTED, PAGES, RECORDS, ROOT, SPAN

GLOSSARY = ROOT / "docs" / "glossary.md"
READ = [page for page in (*PAGES, *RECORDS, ROOT / "SECURITY.md") if page.name != "findings.md"]
"""The pages of the site. The findings are a part of results/README.md."""
ENTRY = re.compile(r"^\*\*([^*]+)\*\*(?: \(([^)]+)\))?:", re.MULTILINE)


def entries() -> list[tuple[str, str]]:
    """(term, expansion) of every entry; the expansion is empty if the term is not an acronym."""
    return ENTRY.findall(GLOSSARY.read_text())


ACRONYMS = {term: expansion for term, expansion in entries() if expansion}


def prose(text: str) -> str:
    """The running text of a page, on one line."""
    for pattern in (FENCE, INDENTED, SPAN):
        text = pattern.sub(" ... ", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", " ", text)
    text = re.sub(r"^#+ .*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(text.replace("*", "").split())


def spelling(text: str) -> str:
    """One spelling for words that differ in British and American English, and for hyphens and capitals."""
    return re.sub(r"is(?=ation|ing|e\b|ed\b)", "iz", text.lower().replace("-", " "))


def unexpanded(text: str) -> list[str]:
    """The acronyms that a page uses without expanding them at their first use."""
    text, missing = prose(text), []
    for acronym, expansion in ACRONYMS.items():
        first = re.search(rf"(?<![\w-]){re.escape(acronym)}(?!\w)", text)
        if first is None:
            continue
        # "LOT (layer-wise orthogonal training)", or "layer-wise orthogonal training (LOT)"
        after = spelling(text[first.end() :]).startswith(spelling(f" ({expansion}"))
        before = re.search(rf"{re.escape(spelling(expansion))}s? \($", spelling(text[: first.start()]))
        if not (after or before):
            missing.append(acronym)
    return missing


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_acronyms_are_expanded_at_first_use(page: Path) -> None:
    missing = unexpanded(page.read_text())
    assert not missing, f"{page.name} uses {', '.join(missing)} without an expansion at first use"


def test_the_glossary_is_sorted_and_has_no_term_twice() -> None:
    terms = [term.lower() for term, _ in entries()]
    assert terms == sorted(set(terms))
    paragraphs = [part for part in GLOSSARY.read_text().split("\n\n") if part.startswith("**")]
    assert len(paragraphs) == len(terms), "an entry does not have the form **term**: or **TERM** (expansion):"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("LOT (layer-wise orthogonal training) is short, and LOT is fast.", []),
        ("Layer-wise orthogonal\ntraining (LOT) is short.", []),
        ("Certificate regularization (CReg) has two spellings.", []),
        ("# LOT\n\n`LOT()` and\n\n```python\nLOT()\n```\n\n    LOT\n\n![LOT](lot.svg)", []),
        ("A lot of slots, a [page](LOT.md).", []),
        ("LOT, then LOT (layer-wise orthogonal training).", ["LOT"]),
        ("The kernel of a [LOT layer](layer.md).", ["LOT"]),
        ("SOC's kernels and **LOT**'s.", ["LOT", "SOC"]),
        ("LOT (the best of all).", ["LOT"]),
    ],
)
def test_the_check_finds_what_it_should(text: str, missing: list[str]) -> None:
    assert unexpanded(text) == missing
