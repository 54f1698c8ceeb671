"""The public library: documented names with examples that run, types, and errors that say how to install extras."""

import doctest
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import lotnet
from lotnet.cli.main import main

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", lotnet.__all__)
def test_public_names_have_examples_that_run(name: str) -> None:
    item = getattr(lotnet, name)
    assert item.__doc__, f"lotnet.{name} has no docstring"
    module = sys.modules[item.__module__]
    (test,) = doctest.DocTestFinder(recurse=False).find(
        item, name, module, vars(module) | {name: getattr(lotnet, name) for name in lotnet.__all__}
    )
    assert test.examples, f"lotnet.{name} has no example"
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys; from lotnet.cli.main import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_public_names_are_loaded_lazily() -> None:
    code = "import lotnet; lotnet.layers.MaxMin; lotnet.paper; from lotnet import *; OrthogonalConv2d, LOT, freeze"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    assert set(lotnet.__all__) <= set(dir(lotnet))
    with pytest.raises(AttributeError, match="module 'lotnet' has no attribute 'OrthogonalConv3d'"):
        _ = lotnet.OrthogonalConv3d


def test_types_are_part_of_the_package() -> None:
    assert Path(lotnet.__file__).with_name("py.typed").is_file()


def extras() -> dict[str, list[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings["project"]["optional-dependencies"]


def packages(extra: str) -> list[str]:
    return [re.split(r"[<>=;\[ ]", entry)[0] for entry in extras()[extra]]


def modules(extra: str) -> list[str]:
    """What the packages of an extra are imported as."""
    return [IMPORTED_AS.get(package, package.replace("-", "_")) for package in packages(extra)]


IMPORTED_AS = {"python-flint": "flint", "vl-convert-python": "vl_convert"}

SAID: dict[str, list[str]] = {
    "attacks": ["attack", "MODEL", "--limit", "40", "--steps", "1", "--autoattack"],
    "export": ["export", "MODEL", "--to", "onnx"],
}
"""Extra: a command that needs it, and says so in one sentence."""

DONE_WITHOUT = {
    "bench": "pictures are left out with a sentence, tests/test_analysis.py",
    "track": "nothing but the curves for TensorBoard is left out, see below",
    "rigor": "only an oracle of tests/falsification",
    "docs": "only `make docs`, tests/test_site.py",
    "dev": "for those who work on lotnet",
}
"""Extra: why no command ends without it, or where that is tested."""


def test_every_extra_is_covered_here() -> None:
    assert extras().keys() <= SAID.keys() | DONE_WITHOUT.keys()


@pytest.mark.parametrize("extra", SAID)
def test_a_missing_extra_gives_a_one_sentence_error_that_names_its_packages(
    extra: str, folder: Path, monkeypatch, capsys
) -> None:
    for module in modules(extra):
        monkeypatch.setitem(sys.modules, module, None)
    assert main([str(folder) if word == "MODEL" else word for word in SAID[extra]]) == 2
    said = capsys.readouterr().err
    assert f"`pip install {' '.join(packages(extra))}`" in said and said.count("\n") == 1


def test_training_goes_on_without_tensorboard(tmp_path: Path, monkeypatch, capsys) -> None:
    for module in ["tensorboard", *(name for name in sys.modules if name.startswith("tensorboard."))]:
        monkeypatch.setitem(sys.modules, module, None)
    tiny = ["--model.channels=4", "--limit=64", "--trainer.batch_size=32", "--trainer.epochs=1"]
    assert main(["train", *tiny, "--out", str(tmp_path / "run")]) == 0
    assert not (tmp_path / "run" / "tensorboard").exists()
    said = capsys.readouterr()
    assert "pip install tensorboard" in said.out + said.err


def test_import_loads_no_extra_and_no_command() -> None:
    """Every extra's packages, and what only the command line needs, stay out of `import lotnet`."""
    wanted = {"torch", "numpy", "safetensors", "triton"}
    heavy = {"lightning_fabric", "jsonargparse", "rich", "PIL", "jinja2", "yaml", "http.server", "sqlite3"}
    unwanted = sorted((heavy | {module for extra in extras() for module in modules(extra)}) - wanted)
    program = f"import sys, lotnet, lotnet.certification; print([name for name in {unwanted} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_extra_is_pinned() -> None:
    """`make test` installs with these pins: a package without a pin could change from one day to the next."""
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    asked = {re.split(r"[<>=;\[ ]", entry)[0].lower() for entries in extras().values() for entry in entries}
    assert asked - pinned == set()
