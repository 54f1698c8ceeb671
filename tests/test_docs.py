"""The Python examples of README.md, CONTRIBUTING.md and docs/ run as written, and their links lead somewhere."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lotnet.data import SOURCES
from lotnet.losses import LOSSES
from lotnet.models import MODELS
from lotnet.parametrizations import PARAMETRIZATIONS
from pages import MACHINE, PAGES, ROOT, blocks

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    """Remove what a page has added to the tables."""
    changed: list[dict[str, Any]] = [LOSSES, MODELS, PARAMETRIZATIONS, SOURCES]
    before = [dict(table) for table in changed]
    yield
    for table, entries in zip(changed, before, strict=True):
        table.clear()
        table.update(entries)


def run_python(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.chdir(folder)
    torch.manual_seed(0)
    namespace: dict = {"__name__": page.stem.replace("-", "_")}
    monkeypatch.setitem(sys.modules, namespace["__name__"], type(sys)(namespace["__name__"]))  # for its dataclasses
    for line, block in blocks(page, "python"):
        # Padded with empty lines, so that a traceback names the line of the page.
        exec(compile("\n" * line + block, str(page), "exec"), namespace)
    return namespace


@pages
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_python(page, tmp_path, monkeypatch)


def test_the_added_parametrization_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_python(ROOT / "docs" / "adding-a-parametrization.md", tmp_path, monkeypatch)
    spec = importlib.util.spec_from_file_location("contract", ROOT / "tests/parametrizations/test_parametrizations.py")
    contract = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "contract", contract)
    spec.loader.exec_module(contract)
    for shape in contract.SHAPES:
        for k in (1, 2, 3):
            for stride in (1, 2):
                for padding_mode in ("zeros", "circular"):
                    contract.check_singular_values("reflections", shape, k, stride, padding_mode)
        for hard in contract.HARD_WEIGHTS:
            contract.test_float32_training_stays_finite_and_bounded_for_every_weight("reflections", shape, hard)
    contract.test_a_layer_starts_at_the_identity_if_the_channels_are_equal("reflections")


def test_the_example_of_the_readme_is_short() -> None:
    (_, block), *others = blocks(ROOT / "README.md", "python")
    assert len(block.strip().splitlines()) <= 15 and not others


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


@pages
def test_anchors_exist(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        other = page.parent / target if target else page
        headings = re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE)
        anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert anchor in anchors, f"{page.name} points to {target}#{anchor}"


@pages
def test_pages_contain_no_local_paths_or_todos(page: Path) -> None:
    text = page.read_text()
    assert (found := MACHINE.search(text)) is None, f"{page.name} names {found[0]}, which only one machine has"
    for word in ("localhost", "TODO"):
        assert word not in text, f"{page.name} contains {word}"
