"""The paper's ResNet-18 recipes build their models, and train on images of the real size with all classes."""

from pathlib import Path

import pytest
import torch

from lotnet.cli.main import main
from lotnet.data import Dataset, Split, cache
from lotnet.runs.directory import Run

RECIPES = {"cifar10": (32, 10), "tiny-imagenet": (64, 200)}


def fake(name: str, side: int, classes: int) -> Dataset:
    """Ten images in each split, of the first and the last class."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, 10, 3, side, side), generator=generator, dtype=torch.uint8)
    train, test = (Split(images, torch.arange(10) % 2 * (classes - 1)) for images in pixels)
    return Dataset(name, train, test, tuple(f"class {n}" for n in range(classes)))


def train(name: str, folder: Path, *settings: str) -> None:
    """Train for one step: validation leaves eight training images, which are one batch."""
    cache.write(fake(name, *RECIPES[name]), folder / f"{name}.safetensors", "a test")
    run = folder / "run"
    options = ["--trainer.epochs=1", "--trainer.batch_size=8", "--device=cpu", *settings]
    arguments = ["--config", f"{name}/resnet18", "--data.root", str(folder), *options, "--out", str(run)]
    assert main(["train", *arguments]) == 0
    (record,) = Run.open(run).metrics()
    assert record.step == 1 and 0 < record.loss < 100
    side, classes = RECIPES[name]
    model = Run.open(run).best_model()
    with torch.no_grad():
        assert model(torch.rand(1, 3, side, side)).shape == (1, classes)


@pytest.mark.parametrize("name", RECIPES)
def test_a_narrow_resnet_takes_a_training_step(name: str, tmp_path: Path) -> None:
    train(name, tmp_path, "--model.channels=2", "--model.head=lln")  # 16 features, too few for 200 orthogonal rows


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_takes_a_training_step(name: str, tmp_path: Path) -> None:
    train(name, tmp_path)
