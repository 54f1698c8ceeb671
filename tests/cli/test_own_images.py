"""Your own images: from a folder to a certified model, through the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lotnet.cli.main import main
from lotnet.config import RunConfig
from lotnet.data import load as load_data
from lotnet.runs.data import load_with_all_test_images
from lotnet.runs.directory import Run

TINY = ("--model.depth=5", "--model.channels=4", "--trainer.epochs=1", "--trainer.batch_size=16", "--device=cpu")


def write_images(root: Path, mode: str = "L", size: tuple[int, int] = (12, 8), count: int = 20) -> Path:
    """Two classes: bright on the left, bright on the right. `size` is (width, height)."""
    rng = np.random.default_rng(0)
    for side in ("left", "right"):
        (root / side).mkdir(parents=True)
        for n in range(count):
            pixels = rng.integers(0, 100, size[::-1], dtype=np.uint8)
            half = slice(None, size[0] // 2) if side == "left" else slice(size[0] // 2, None)
            pixels[:, half] += 100
            Image.fromarray(pixels).convert(mode).save(root / side / f"{n:02}.png")
    return root


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path / "cache"))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images")


def test_grey_rectangles_keep_their_pixels_from_training_to_prediction(images: Path, tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    assert main(["train", "--data.name", f"folder:{images}", "--out", str(run), *TINY]) == 0
    data = Run.open(run).config.data
    assert (data.side, data.width, data.channels) == (8, 12, "grey")
    assert Run.open(run).images().channels == 1
    assert main(["certify", str(run), "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main(["predict", str(run), str(images / "left" / "00.png"), "--json", "--device", "cpu"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["images"]
    assert answer["changes"] == []
    assert answer["scope"] == "The radius is in the file's own pixels, 8 x 12 grey pixels."
    assert main(["certify", str(run / "model"), "--device", "cpu"]) == 0  # reads the folder in the model's shape
    assert main(["report", str(run)]) == 0


def test_a_run_of_an_earlier_version_keeps_its_shape(images: Path) -> None:
    """It did not store the shape: images of a folder were RGB, 32 x 32."""
    config = RunConfig().override({"data.name": f"folder:{images}"})
    assert load_with_all_test_images(config).shape == (3, 32, 32)
    expected = load_data(config.data.name, side=32, channels="rgb")
    assert torch.equal(load_with_all_test_images(config).train.images, expected.train.images)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--data.side", "0"], "data.side must be at least 1, not 0"),
        (["--data.width", "8"], "data.side must be given together with data.width, not None"),
        (["--data.channels", "red"], "data.channels cannot be 'red': give one of grey, rgb or null"),
    ],
)
def test_wrong_pixels_are_refused(options: list[str], sentence: str, images: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert main(["train", "--data.name", f"folder:{images}", "--out", str(out), *TINY, *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()
