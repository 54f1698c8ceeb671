"""The wheel, alone in a new environment: no checkout, no extras. Slow: it installs PyTorch."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from lotnet.pretrained import shipped_names

ROOT = Path(__file__).parent.parent


def call(*command: str | Path, cwd: Path, expected: int = 0) -> str:
    """Run a command and return stdout and stderr together. It gets no PYTHONPATH, which could point to the checkout."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == expected, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.mark.slow
def test_an_installed_wheel_trains_and_certifies(tmp_path: Path) -> None:
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("lotnet-*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    for part in (
        "py.typed",
        "data/digits.safetensors",
        "demo/page/index.html",
        "web/style.css",
        "recipes/cifar10/plain.yaml",
    ):
        assert f"lotnet/{part}" in inside
    assert not [name for name in inside if name.startswith(("tests/", "benchmarks/", "carry/", "runs/"))]

    venv.create(tmp_path / "venv", with_pip=True)
    bin_folder = tmp_path / "venv" / "bin"
    pins = ROOT / "constraints.txt"
    call(bin_folder / "python", "-m", "pip", "install", "--quiet", "-c", pins, wheel, cwd=tmp_path)
    lotnet = bin_folder / "lotnet"
    where = call(bin_folder / "python", "-c", "import lotnet; print(lotnet.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where

    tiny = ("--model.channels=4", "--limit=200", "--trainer.epochs=2")
    call(lotnet, "train", *tiny, "--out", "run", cwd=tmp_path)
    assert "claim B" in call(lotnet, "certify", "run", cwd=tmp_path)
    assert json.loads((tmp_path / "run" / "certificates.json").read_text())["summary"]["images"] == 359
    assert (tmp_path / "run" / "model" / "README.md").is_file()
    assert "none broken" in call(lotnet, "attack", "run", "--limit", "5", "--steps", "2", cwd=tmp_path)
    call(lotnet, "export", "run", "--to", "torch", cwd=tmp_path)
    call(lotnet, "pack", "run", "--out", "packed", "--limit", "20", cwd=tmp_path)
    listed = call(bin_folder / "python", "-c", "import lotnet.pretrained as p; print(p.shipped_names())", cwd=tmp_path)
    assert listed.strip() == str(shipped_names())
    every_verb = "import importlib, lotnet.cli.main as c; [importlib.import_module(m) for m, _ in c.VERBS.values()]"
    call(bin_folder / "python", "-c", every_verb, cwd=tmp_path)

    missing = {
        "onnx onnxscript onnxruntime": ("export", "run", "--to", "onnx"),
        "pyautoattack": ("attack", "run", "--autoattack", "--limit", "100", "--steps", "1"),
    }
    for packages, words in missing.items():
        said = call(lotnet, *words, cwd=tmp_path, expected=2).splitlines()[-1]
        assert f"`pip install {packages}`" in said, said
