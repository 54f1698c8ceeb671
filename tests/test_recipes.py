"""Every recipe, and every row of the paper through its recipe and overrides, parses and builds its model."""

import dataclasses
from pathlib import Path

import pytest
import torch

from lotnet.cli.verbs.train import default_recipe, read_arguments
from lotnet.config import RunConfig, read_recipe, recipes
from lotnet.errors import InputError
from lotnet.layers import ConvexResidual, Householder, NormalizedLinear, OrthogonalConv2d
from lotnet.losses import CReg, CrossEntropy
from lotnet.models import ImageSpec, LipConvnet, LipResNet18, parameter_count
from lotnet.paper import tables as paper
from lotnet.parametrizations import LOT, SOC

GREY = ImageSpec(1, 8, 8, 10, (0.3,), 0.38)
COLOUR = ImageSpec(3, 32, 32, 10, (0.49, 0.48, 0.45), 0.2507)
IMAGES = {
    "digits": GREY,
    "folder": COLOUR,
    "cifar10": COLOUR,
    "cifar100": dataclasses.replace(COLOUR, classes=100),
    "tiny-imagenet": dataclasses.replace(COLOUR, height=64, width=64, classes=200),
}


def build(config: RunConfig, images: ImageSpec) -> torch.nn.Sequential:
    with torch.device("meta"):  # shapes without numbers
        return config.model.build(images)


@pytest.mark.parametrize("name", [name for name in recipes() if not name.endswith("/selftrain")])
def test_recipe_builds_and_survives_a_round_trip(name: str) -> None:
    config = RunConfig.from_dict(read_recipe(name), name)
    assert parameter_count(build(config, IMAGES[name.split("/")[0]])) > 0
    assert RunConfig.from_yaml(config.to_yaml(), "config.yaml") == config
    assert RunConfig.from_yaml(config.to_yaml(), "config.yaml").fingerprint() == config.fingerprint()


def test_recipes_are_short() -> None:
    folder = Path(paper.__file__).parent / "recipes"
    assert all(len(file.read_text().splitlines()) <= 9 for file in folder.glob("*/*.yaml"))


def test_the_paper_has_122_rows() -> None:
    assert len(paper.rows()) == 122


@pytest.mark.parametrize("table", paper.tables())
def test_every_row_builds_what_it_says(table: str) -> None:
    for row in paper.rows_of(table):
        recipe, overrides = paper.recipe_for(row)
        _, config, _ = read_arguments(["--config", recipe, *paper.arguments(overrides)])
        assert config.data.name == {"tinyimagenet": "tiny-imagenet"}.get(row.dataset, row.dataset)
        assert (config.trainer.epochs, config.trainer.batch_size) == (200, 256)
        assert (config.optimizer.name, config.optimizer.lr, config.optimizer.momentum) == ("sgd", 0.1, 0.9)
        assert config.optimizer.schedule == "multistep"
        assert config.optimizer.weight_decay == (5e-4)
        assert isinstance(config.loss, CReg if row.creg_hh else CrossEntropy)
        layers = list(build(config, IMAGES[config.data.name]).modules())
        convolutions = [layer for layer in layers if isinstance(layer, OrthogonalConv2d)]
        assert all(isinstance(c.parametrization, LOT if row.conv == "LOT" else SOC) for c in convolutions)
        circular = [c for c in convolutions if c.padding_mode == "circular"]
        assert bool(circular) == (row.padding == "circular")
        assert any(isinstance(layer, Householder) for layer in layers) == row.creg_hh
        assert isinstance(layers[-1], NormalizedLinear) == row.lln
        if row.model.startswith("LipConvnet"):
            depth = int(row.model.removeprefix("LipConvnet-"))
            assert len(convolutions) == depth + (not row.lln)  # the orthogonal head is one, of one pixel
            residuals = sum(isinstance(layer, ConvexResidual) for layer in layers)
            assert residuals == (max(depth - 10, 0) if row.residual else 0)
        assert paper.command_for(row).split()[1] == ("selftrain" if row.setting == "semi-supervised" else "train")


@pytest.mark.parametrize(("depth", "count"), [(5, 8_309_450), (20, 17_798_858), (40, 30_373_450)])
def test_parameter_counts(depth: int, count: int) -> None:
    _, config, _ = read_arguments(["--config", "cifar10/plain", "--model.depth", str(depth)])
    assert parameter_count(build(config, COLOUR)) == count


def test_an_override_wins_wherever_it_stands() -> None:
    before = read_arguments(["--loss.gamma", "0.3", "--config", "cifar10/creg-hh"])[1]
    after = read_arguments(["--config", "cifar10/creg-hh", "--loss.gamma", "0.3"])[1]
    assert before == after
    assert before.loss == CReg(gamma=0.3)


def test_another_kind_keeps_what_it_has_of_the_recipe() -> None:
    _, config, _ = read_arguments(["--config", "cifar10/creg-hh", "--model.kind", "lipresnet18", "--loss.kind", "emma"])
    assert config.model.activation == "hh1"
    assert config.to_dict()["loss"]["kind"] == "emma"


def test_a_recipe_file_of_ones_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("model: {channels: 8}\noptimizer: {lr: 3e-3}\n")
    _, config, name = read_arguments(["--config", str(mine)])
    assert config.to_dict()["model"]["channels"] == 8
    assert config.optimizer.lr == 3e-3
    assert name == str(mine)


def test_the_data_set_chooses_a_recipe() -> None:
    assert default_recipe("digits") == "digits/default"
    assert default_recipe("cifar100") == "cifar100/plain"
    assert default_recipe("folder:/photos") == "folder/default"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("model: {dept: 10}", "unknown setting model.dept: did you mean model.depth?"),
        ("modle: {depth: 10}", "did you mean model?"),
        ("model: {depth: deep}", "model.depth cannot be 'deep': give a whole number"),
        ("model: {depth: 7}", "multiple of 5"),
        ("model: {kind: resnet}", "unknown model.kind resnet"),
        ("model: {activation: relu}", "give one of maxmin, hh1, hh2"),
        ("loss: {gamma: 1}", "unknown setting loss.gamma"),
        ("loss: {kind: creg, on: image}", "radius or the margin"),
        ("trainer: {epochs: 0}", "at least 1"),
        ("trainer: 5", "trainer is not a group of settings"),
        ("seed: null", "seed cannot be null"),
        ("data: {side: a}", "give a whole number or null"),
        ("model: {depth: 10", "not valid YAML"),
        ("- 1", "holds no settings"),
    ],
)
def test_a_wrong_recipe_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text)
    with pytest.raises(InputError) as error:
        read_arguments(["--config", str(wrong)])
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_setting_added_later_does_not_part_a_run_from_its_checkpoints() -> None:
    """Only settings that differ from their defaults count in the fingerprint, and all of those do."""
    config = RunConfig()
    assert config.fingerprint() == RunConfig.from_yaml(config.to_yaml(), "test").fingerprint()
    others = [
        RunConfig(seed=1),
        RunConfig(limit=7),
        RunConfig(model=LipConvnet(depth=10)),
        RunConfig(model=LipResNet18()),
        RunConfig(loss=CReg()),
        RunConfig(loss=CReg(gamma=0.1)),
    ]
    assert len({c.fingerprint() for c in [config, *others]}) == len(others) + 1
    shorter = config.to_yaml().replace("  threads: null\n", "")
    assert shorter != config.to_yaml()
    assert RunConfig.from_yaml(shorter, "an older version").fingerprint() == config.fingerprint()
