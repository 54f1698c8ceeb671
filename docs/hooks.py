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
from lotnet.models import ModelConfig
from lotnet.paper import results
from lotnet.parametrizations import Parametrization
from lotnet.pretrained import FOLDER, packed, shipped_names

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(\]\()([^)#\s]+)")
DIRECTIVE = re.compile(r" *# doctest:.*")
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


def on_post_page(output: str, **_: Any) -> str:
    """The theme's search is a dialog without a name, which a screen reader could not announce."""
    search = 'data-md-component="search" role="dialog"'
    return output.replace(search, f'{search} aria-label="Search"')


class Examples(griffe.Extension):
    """Shows the examples in docstrings as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            value = DIRECTIVE.sub("", obj.docstring.value)
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>\n```", value)


def notebook(path: Path) -> str:
    """A notebook's cells as a page."""
    cells = json.loads(path.read_text())["cells"]
    texts = []
    for cell in cells:
        text = "".join(cell["source"])
        texts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(texts) + "\n"


FIRST = (
    *("train", "load", "freeze", "certify", "predict", "convert", "save_pretrained"),
    *("orthogonalized", "CapturedGradients", "FrozenModel", "Certificates", "Certificate", "Prediction"),
)
"""The names of the first section of the API page, in the order in which a reader needs them."""
SECTIONS = {
    "Layers": "layers",
    "Parametrizations": "parametrizations",
    "Networks": "models",
    "Losses": "losses",
    "Attacks": "attacks",
    "Settings": "config",
}
"""Titles of the other sections, and the package that each is about."""
INTERNAL = {
    "Certificates": "joined|of|not_finite",
    "FrozenModel": "adopt_for_float64|name_classes|is_intact",
    "OrthogonalConv2d": "prepared|free_weight|free_operator|frozen_operator|geometry",
    **dict.fromkeys(("BCOP", "Cayley", "LOT", "SOC"), "initial_weight|grouped|polar_of_parts|lipschitz_bound"),
    **dict.fromkeys(("AttackReport", "Counterexample", "Nearest"), "to_dict|without_pixels"),
    "RunConfig": "from_dict|fingerprint",
    "Settings": "source|extra|known|with_kinds|make|read",
}
"""Methods that other parts of lotnet call, by class. They are not on the API page."""


def api() -> str:
    """The API page: what `lotnet`, `lotnet.attacks` and `lotnet.config` export, the losses and the base classes."""
    sections: dict[str, list[Any]] = {"Train, load, certify, predict": [getattr(lotnet, name) for name in FIRST]}
    titles = {package: title for title, package in SECTIONS.items()}
    public = [Parametrization, ModelConfig, Loss, *LOSSES.values()]
    public += [getattr(lotnet, name) for name in lotnet.__all__ if name not in FIRST]
    public += [getattr(package, name) for package in (attacks, settings) for name in package.__all__]
    for item in public:
        if inspect.isclass(item) or inspect.isroutine(item):
            sections.setdefault(titles[item.__module__.split(".")[1]], []).append(item)
    lines = ["# Python API", "", "Made from the docstrings of the code. Each section starts with a list of its names."]
    for title in (next(iter(sections)), *SECTIONS):
        lines += ["", f"## {title}", "", "| name | what it is |", "|---|---|"]
        lines += [f"| [`{item.__name__}`](#{full_name(item)}) | {first_line(item)} |" for item in sections[title]]
        for item in sections[title]:
            lines += ["", f"::: {full_name(item)}"]
            if hidden := INTERNAL.get(item.__name__):
                lines += ["    options:", f"      filters: ['!^_', '!^({hidden})$']"]
    return "\n".join(lines) + "\n"


def full_name(item: Any) -> str:
    return f"{item.__module__}.{item.__name__}"


def first_line(item: Any) -> str:
    """The first line of a docstring, as the entry of an index."""
    return (inspect.getdoc(item) or "").split("\n")[0].replace("|", "\\|")


def model_zoo() -> str:
    """Every model that comes with lotnet and every recorded run, with its accuracies, checksum and command."""
    recorded = results.load_all(ROOT / "results")
    lines = [
        "# Model zoo",
        "",
        "Accuracies are percentages of all test images: clean, and certified at 36/255, 72/255 and 108/255 (l2) by",
        "claim B, the float64 program ([certificates](certificates.md)). Layers are LOT (layer-wise orthogonal",
        "training) or SOC (skew orthogonal convolution). Losses are cross-entropy, offset cross-entropy, CReg",
        "(certificate regularisation) and EMMA (efficient margin maximisation).",
        "",
        "## Models that come with lotnet",
        "",
        '`lotnet.load("NAME")` loads a model in Python, and `lotnet predict NAME photo.png` applies it to a picture.',
        "",
    ]
    for name in shipped_names():
        lines += shipped_model(name, recorded)
    lines += [
        "## Recorded runs",
        "",
        "Runs that were trained, certified on all test images and stored by `lotnet record`. Their files are in",
        "`results/`, and [measured results](results/README.md) discusses them. Their weights are not in the package.",
        "",
        "| run | network | clean | 36/255 | 72/255 | 108/255 | million parameters |",
        "|---|---|" + "---:|" * 5,
    ]
    for result in recorded:
        found = result.percentages()
        cells = (f"{found[key]:.2f}" for key in ("clean", "cert_36", "cert_72", "cert_108"))
        size = f"{result.parameters / 1e6:.1f}"
        lines.append(f"| {result.name} | {results.title(result)} | {' | '.join(cells)} | {size} |")
    lines += ["", "The command that trains each run again, and the checksum of its frozen model:", ""]
    lines += ["| run | command | checksum |", "|---|---|---|"]
    lines += [f"| {result.name} | `{result.command}` | `{result.checksum[:12]}` |" for result in recorded]
    return "\n".join(lines) + "\n"


def shipped_model(name: str, recorded: list[results.Result]) -> list[str]:
    """The section of the model zoo about one model of the package."""
    model = packed.read(FOLDER / name)
    if model.result is None:
        raise ValueError(f"{name} has no certified accuracy: pack it again with `lotnet pack`")
    loss = None if model.trained is None else model.trained.loss
    run = next(r for r in recorded if r.run_config.model == model.model and r.config["loss"] == loss)
    shares = (model.result.clean, *model.result.certified["float"])
    parameters = sum(tensor.numel() for tensor in model.tensors.values())
    facts = {
        "network": f"{results.title(run)}, {parameters / 1e6:.1f} million parameters",
        "data": f"{model.data}, images of {' x '.join(map(str, model.images.shape))}, {len(model.classes)} classes",
        "training": f"`{run.command}`, which took {run.train_seconds:.0f} s on one {run.evaluation_device}",
        "SHA-256 of the kernels": f"`{hashlib.sha256((FOLDER / name / packed.KERNELS).read_bytes()).hexdigest()}`",
    }
    return [
        f"### {name}",
        "",
        "| clean | 36/255 | 72/255 | 108/255 |",
        "|---:|---:|---:|---:|",
        f"| {' | '.join(f'{share:.2%}' for share in shares)} |",
        "",
        *(f"* {title}: {fact}" for title, fact in facts.items()),
        "",
    ]
