"""The documentation site builds without a warning, and opens from a disk without a network."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import lotnet
import lotnet.pretrained
from accessibility import SCHEMES, serious
from pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_link_between_pages_leads_somewhere(site: Path) -> None:
    broken = []
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue  # its links are absolute, for a server
        for target in re.findall(r'(?:href|src)="([^"]+)"', page.read_text()):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            other = (page.parent / unquote(path)).resolve() if path else page
            anchored = anchor and other.suffix == ".html"
            if not other.exists() or (anchored and f'id="{unquote(anchor)}"' not in other.read_text()):
                broken.append(f"{page.relative_to(site)}: {target}")
    assert broken == []


def test_every_public_name_is_on_the_api_page(site: Path) -> None:
    page = (site / "api.html").read_text()
    missing = [name for name in lotnet.__all__ if not re.search(rf'<h3 id="lotnet\.[\w.]*{name}"', page)]
    assert missing == []


def test_examples_in_docstrings_are_shown_as_code(site: Path) -> None:
    page = re.sub(r"<pre.*?</pre>", "", (site / "api.html").read_text(), flags=re.DOTALL)
    assert "&gt;&gt;&gt;" not in page


def test_every_result_is_in_the_zoo(site: Path) -> None:
    page = (site / "model-zoo.html").read_text()
    names = [path.stem for path in (ROOT / "results").glob("cifar*.json")]
    assert names and all(name in page for name in names)


def test_it_opens_and_searches_without_a_network(site: Path, browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").type("certificate")
    page.get_by_text("matching documents").wait_for()
    assert re.match(r"[1-9]\d* matching", page.locator(".md-search-result__meta").inner_text())
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_serious_on_the_first_page(site: Path, browser, scheme: str) -> None:
    for width in (1280, 375):
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.goto((site / "index.html").as_uri())
        assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
        assert serious(page, (scheme,)) == []
        page.close()


def test_internal_methods_and_undocumented_names_are_not_on_the_api_page(site: Path) -> None:
    page = (site / "api.html").read_text()
    shown = re.findall(r'<h[34] id="lotnet\.[\w.]*?(\w+)"', page)
    assert [name for name in shown if name.startswith("_") or name in ("adopt_for_float64", "prepared")] == []
    first_lines = re.findall(r"<tr>\s*<td><a href=\"#lotnet[^>]*><code>(\w+)</code></a></td>\s*<td>(.*?)</td>", page)
    assert len(first_lines) > 70
    assert [name for name, line in first_lines if not line.endswith((".", "</code>", ":"))] == []


def test_the_model_zoo_expands_acronyms_and_says_how_each_model_was_trained(site: Path) -> None:
    text = re.sub(r"<[^>]+>", " ", (site / "model-zoo.html").read_text())
    for name in lotnet.pretrained.shipped_names():
        assert re.search(
            rf"{name}.*?training:\s+lotnet train .*?SHA-256 of the kernels:\s+[0-9a-f]{{64}}", text, re.DOTALL
        )
    for words in ("LOT (layer-wise orthogonal", "EMMA (efficient margin", "CReg (certificate"):
        assert words in " ".join(text.split())
