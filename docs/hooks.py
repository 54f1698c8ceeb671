"""Builds the site from the repository's own files, so that no page has a second copy.

MkDocs calls the functions `on_*` (`hooks` in mkdocs.yml). Pages outside of docs/ (the README, the changelog, results)
are added under the names in `site_path`, and links between files of the repository are turned into links between pages.
mkdocstrings loads this file, too, as an extension of griffe, which reads the docstrings.
"""

import hashlib
import inspect
import json
import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

import lotnet
from lotnet import attacks
from lotnet import config as settings
from lotnet.losses import LOSSES, Loss
from lotnet.paper import results
from lotnet.pretrained import FOLDER, packed, shipped_names

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(\]\()([^)#\s]+)")
DOCTEST = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)
RENAMED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
    "notebooks/quickstart.ipynb": "notebook.md",
}


def site_path(path: str) -> str:
    """Where a file of the repository is on the site."""
    return RENAMED.get(path, path.removeprefix("docs/"))


def on_files(files: Files, config: Any) -> Files:
    added = [ROOT / name for name in RENAMED if (ROOT / name).exists()]
    added += [path for suffix in ("md", "png") for path in sorted((ROOT / "results").glob(f"*.{suffix}"))]
    for path in added:
        uri = site_path(path.relative_to(ROOT).as_posix())
        if path.suffix == ".ipynb":
            files.append(File.generated(config, uri, content=notebook(path)))
        elif path.name == "LICENSE":
            files.append(File.generated(config, uri, content=f"# Licence\n\n```text\n{path.read_text()}```\n"))
        else:
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    files.append(File.generated(config, "model-zoo.md", content=model_zoo()))
    files.append(File.generated(config, "api.md", content=api()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links are written for the repository; on the site files lie elsewhere."""
    uri = page.file.src_uri
    source = next((path for path, name in RENAMED.items() if name == uri), None)
    if source is None:
        source = uri if uri.startswith("results/") else f"docs/{uri}"
    here = posixpath.dirname(source)

    def on_site(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = site_path(posixpath.normpath(posixpath.join(here, target)))
        return match[1] + posixpath.relpath(path, posixpath.dirname(uri) or ".")

    return LINK.sub(on_site, markdown)


def on_config(config: Any) -> Any:
    config.extra_css.append("stylesheets/accessible.css")
    return config


def on_post_page(output: str, **_: Any) -> str:
    """The theme's search is a dialog without a name, which a screen reader could not announce."""
    search = 'data-md-component="search" role="dialog"'
    return output.replace(search, f'{search} aria-label="Search"')


class Examples(griffe.Extension):
    """Shows the examples in docstrings as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)


def notebook(path: Path) -> str:
    """A notebook's cells as a page."""
    cells = json.loads(path.read_text())["cells"]
    texts = []
    for cell in cells:
        text = "".join(cell["source"])
        texts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(texts) + "\n"


SECTIONS = {
    "Layers": "layers",
    "Parametrizations": "parametrizations",
    "Networks": "models",
    "Losses": "losses",
    "Attacks": "attacks",
    "Settings": "config",
}
"""Titles on the API page, and the package that each is about. What is in none of them comes first."""


def api() -> str:
    """The API page: what `lotnet`, `lotnet.attacks` and `lotnet.config` export, and the losses."""
    shown: dict[str, list[str]] = {"Train, load, certify, predict": []} | {title: [] for title in SECTIONS}
    titles = {package: title for title, package in SECTIONS.items()}
    public = [getattr(lotnet, name) for name in lotnet.__all__]
    public += [Loss, *LOSSES.values()]
    public += [getattr(package, name) for package in (attacks, settings) for name in package.__all__]
    for item in public:
        if inspect.isclass(item) or inspect.isroutine(item):
            title = titles.get(item.__module__.split(".")[1], next(iter(shown)))
            shown[title].append(f"::: {item.__module__}.{item.__name__}\n")
    lines = ["# Python API", "", "Made from the docstrings of the code.", ""]
    for title, entries in shown.items():
        lines += [f"## {title}", "", *entries]
    return "\n".join(lines) + "\n"


def model_zoo() -> str:
    """Every model that comes with lotnet and every recorded run, with its accuracies, checksum and command."""
    lines = [
        "# Model zoo",
        "",
        "Accuracies are percentages of all test images: clean, and certified at 36/255, 72/255 and 108/255 (l2) by",
        "claim B, the float64 program ([certificates](certificates.md)).",
        "",
        "## Models that come with lotnet",
        "",
        "| name | data | clean | 36/255 | 72/255 | 108/255 | SHA-256 of the kernels |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in shipped_names():
        model = packed.read(FOLDER / name)
        found = model.result or {}
        shares = (found["clean"], *found["certified"]["float"])
        digest = hashlib.sha256((FOLDER / name / packed.KERNELS).read_bytes()).hexdigest()
        lines.append(f"| {name} | {model.data} | {' | '.join(f'{share:.2%}' for share in shares)} | `{digest}` |")
    lines += ["", '`lotnet.load("NAME")` in Python, `lotnet predict NAME photo.png` on the command line.', ""]
    lines += ["## Recorded runs", "", "Train them by their command; the checksum is of the frozen model.", ""]
    lines += ["| run | clean | 36/255 | 72/255 | 108/255 | parameters | checksum | command |", "|---|" + "---|" * 7]
    for result in results.load_all(ROOT / "results"):
        found = result.percentages()
        cells = (f"{found[key]:.2f}" for key in ("clean", "cert_36", "cert_72", "cert_108"))
        size = f"{result.parameters / 1e6:.1f} million"
        lines.append(
            f"| {result.name} | {' | '.join(cells)} | {size} | `{result.checksum[:12]}` | `{result.command}` |"
        )
    return "\n".join(lines) + "\n"
