"""The rule that chooses network, batch size and epochs for the images of a folder."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from lotnet.cli.verbs import train
from lotnet.config import RunConfig
from lotnet.config.settings import PresetName
from lotnet.errors import InputError
from lotnet.losses import EMMA, OffsetCrossEntropy
from lotnet.models import LipConvnet
from lotnet.runs.presets import PRESETS, stage_work
from lotnet.training.run import configuration


def chosen(preset: str, height: int, width: int, images: int) -> tuple[int, int, int, int]:
    return tuple(PRESETS[preset].settings(height, width, images).values())


@pytest.mark.parametrize(
    ("preset", "size", "images", "expected"),
    [
        ("small", (28, 28), 6_000, (5, 16, 64, 40)),
        ("small", (32, 32), 6_000, (5, 8, 64, 40)),
        ("small", (32, 32), 60_000, (5, 8, 64, 10)),
        ("small", (32, 32), 40, (5, 8, 4, 200)),
        ("small", (64, 64), 1_000, (5, 4, 64, 60)),
        ("small", (224, 224), 1_000, (5, 4, 64, 10)),
        ("medium", (32, 32), 10_000, (10, 16, 128, 100)),
        ("large", (32, 32), 50_000, (20, 32, 256, 60)),
        ("large", (64, 64), 100_000, (20, 32, 256, 10)),
        ("large", (28, 28), 6_000, (20, 32, 256, 200)),
    ],
)
def test_the_rule(preset: str, size: tuple[int, int], images: int, expected: tuple[int, ...]) -> None:
    """Depth, channels, batch size and epochs. These values are a promise: docs/own-images.md has the rule."""
    assert chosen(preset, *size, images) == expected


def test_work_counts_every_stage() -> None:
    assert stage_work(32, 32, 8) == 256 * 16**3 + 64 * 32**3 + 16 * 64**3 + 4 * 128**3 + 256**3
    assert stage_work(28, 28, 8) == 196 * 16**3 + 4 * 49 * 32**3


def test_every_preset_has_a_name() -> None:
    assert {"auto", *PRESETS} == set(get_args(PresetName))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path / "cache"))
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for n in range(20):
            Image.fromarray(np.full((8, 8), n, dtype=np.uint8)).save(tmp_path / "images" / name / f"{n}.png")
    return f"folder:{tmp_path / 'images'}"


def config_of(*arguments: str) -> RunConfig:
    return train.read_arguments([*arguments, "--device=cpu"])[1]


def test_what_was_chosen_is_stored_and_the_command_line_wins(folder: str) -> None:
    config = config_of("--data.name", folder)
    assert isinstance(config.model, LipConvnet)
    assert (config.preset, config.trainer.batch_size, config.trainer.epochs) == ("small", 2, 200)
    assert config.model.full_depth
    assert RunConfig.from_yaml(config.to_yaml(), "config.yaml") == config
    assert config_of("--data.name", folder, "--trainer.epochs", "3").trainer.epochs == 3
    large = config_of("--data.name", folder, "--preset", "large")
    assert (large.preset, large.model.layers, large.trainer.batch_size) == ("large", 20, 2)
    same, name = configuration(None, {"data.name": folder, "preset": "large"}, "cpu")
    assert (same.model, same.trainer, name) == (large.model, large.trainer, "folder/default")


def test_a_run_that_starts_from_a_model_is_shorter(folder: str) -> None:
    config = config_of("--data.name", folder, "--init", "lipconvnet5-cifar10")
    assert isinstance(config.model, LipConvnet)
    assert (config.model.channels, config.trainer.epochs, config.optimizer.lr) == (32, 10, 0.002)
    assert config.loss == EMMA(radius=72 / 255, temperature=0.18)
    given = config_of("--data.name", folder, "--init", "lipconvnet5-cifar10", "--loss.radius", "36/255")
    assert given.loss == EMMA(radius=36 / 255, temperature=0.18)
    other = config_of("--data.name", folder, "--init", "lipconvnet5-cifar10", "--loss.kind", "offset")
    assert other.loss == OffsetCrossEntropy(temperature=0.18), "a loss without a radius"


def test_a_recipe_of_ones_own_keeps_its_settings_unless_the_command_line_names_a_preset(
    folder: str, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"preset: auto\ndata: {{name: '{folder}'}}\ntrainer: {{epochs: 7}}\n")
    assert config_of("--config", str(mine)).trainer.epochs == 7
    assert config_of("--config", str(mine), "--preset", "small").trainer.epochs == 200
    mine.write_text(config_of("--data.name", folder, "--model.channels", "2").to_yaml())
    again = config_of("--config", str(mine))
    assert isinstance(again.model, LipConvnet) and again.model.channels == 2


def test_presets_are_for_folders() -> None:
    with pytest.raises(InputError, match="presets are for images of a folder, not for cifar10: leave it out"):
        config_of("--config", "cifar10/plain", "--preset", "small")


def test_the_batch_is_an_eighth_of_the_images_that_are_trained_on(folder: str) -> None:
    """32 training images, less those that choose the best epoch, at least one of each class."""
    sizes = {"0": 4, "0.05": 2, "0.5": 2, "0.99": 1}
    for share, size in sizes.items():
        assert config_of("--data.name", folder, "--data.validation", share).trainer.batch_size == size
    assert config_of("--data.name", folder, "--data.validation", "0", "--limit", "16").trainer.batch_size == 2
