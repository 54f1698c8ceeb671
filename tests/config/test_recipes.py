"""Every recipe, and every row of the paper through its recipe and overrides, parses and builds its model."""

import dataclasses
from pathlib import Path

import pytest
import torch

import lotnet
from lotnet.config import RunConfig, default_recipe, recipes
from lotnet.errors import InputError
from lotnet.layers import ConvexResidual, Householder, NormalizedLinear, OrthogonalConv2d
from lotnet.losses import CReg, CrossEntropy
from lotnet.models import ImageSpec, parameter_count
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
    config = RunConfig.from_recipe(name)
    assert parameter_count(build(config, IMAGES[name.split("/")[0]])) > 0
    assert RunConfig.from_yaml(config.to_yaml(), "config.yaml") == config
    assert RunConfig.from_yaml(config.to_yaml(), "config.yaml").fingerprint() == config.fingerprint()


def test_recipes_are_short() -> None:
    files = list((Path(lotnet.__file__).parent / "recipes").glob("*/*.yaml"))
    assert len(files) == len(recipes())
    assert all(len(file.read_text().splitlines()) <= 9 for file in files)


def test_the_paper_has_122_rows() -> None:
    assert len(paper.rows()) == 122


@pytest.mark.parametrize("table", paper.tables())
def test_every_row_builds_the_model_it_names(table: str) -> None:
    for row in paper.rows_of(table):
        recipe, overrides = paper.recipe_for(row)
        config = RunConfig.from_recipe(recipe, overrides)
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
            assert len(convolutions) == depth + (not row.lln)  # the orthogonal head is a 1 x 1 convolution
            residuals = sum(isinstance(layer, ConvexResidual) for layer in layers)
            assert residuals == (max(depth - 10, 0) if row.residual else 0)
        assert paper.command_for(row).split()[1] == ("selftrain" if row.setting == "semi-supervised" else "train")


@pytest.mark.parametrize(("depth", "count"), [(5, 8_309_450), (20, 17_798_858), (40, 30_373_450)])
def test_parameter_counts(depth: int, count: int) -> None:
    config = RunConfig.from_recipe("cifar10/plain", {"model.depth": depth})
    assert parameter_count(build(config, COLOUR)) == count


def test_changing_the_kind_keeps_the_settings_that_both_kinds_have() -> None:
    config = RunConfig.from_recipe("cifar10/creg-hh", {"model.kind": "lipresnet18", "loss.kind": "emma"})
    assert config.model.activation == "hh1"
    assert config.to_dict()["loss"]["kind"] == "emma"


def test_a_recipe_from_your_own_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("model: {channels: 8}\noptimizer: {lr: 3e-3}\ntrainer: {radius: 72/255}\n")
    config = RunConfig.from_recipe(mine)
    assert config.to_dict()["model"]["channels"] == 8
    assert (config.optimizer.lr, config.trainer.radius) == (3e-3, 72 / 255)


@pytest.mark.parametrize("name", [name for name in recipes() if not name.endswith("/selftrain")])
def test_the_config_of_a_run_is_a_recipe(name: str, tmp_path: Path) -> None:
    config = RunConfig.from_recipe(name, {"seed": 3, "limit": 9})
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    assert RunConfig.from_recipe(tmp_path / "config.yaml") == config
    assert RunConfig.from_recipe(tmp_path / "config.yaml", {"seed": 4}).seed == 4


def test_a_self_training_recipe_is_not_a_run_recipe() -> None:
    with pytest.raises(InputError, match="use `lotnet selftrain --config digits/selftrain`"):
        RunConfig.from_recipe("digits/selftrain")


def test_the_data_set_selects_a_recipe() -> None:
    assert default_recipe("digits") == "digits/default"
    assert default_recipe("cifar100") == "cifar100/plain"
    assert default_recipe("folder:/photos") == "folder/default"
    assert default_recipe("digits", "selftrain") == "digits/selftrain"
    assert default_recipe("cifar100", "selftrain") == "cifar100/plain"


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
        ("data: {side: a}", "data.side cannot be 'a': give a whole number"),
        ("data: {distort: 1}", "data.distort cannot be 1: give true or false"),
        ("data: {name: 5}", "data.name cannot be 5: give text"),
        ("trainer: {epochs: true}", "trainer.epochs cannot be true: give a whole number"),
        ("trainer: {epochs: 2.0}", "trainer.epochs cannot be 2.0: give a whole number"),
        ("trainer: {epochs: '2'}", "trainer.epochs cannot be '2': give a whole number"),
        ("optimizer: {lr: false}", "optimizer.lr cannot be false: give a number"),
        ("optimizer: {lr: .nan}", "optimizer.lr cannot be nan: give a number"),
        ("optimizer: {lr: 1/0}", "optimizer.lr cannot be '1/0': give a number"),
        ("model: {options: {condition: much}}", "model.options cannot be {'condition': 'much'}: give settings by name"),
        ("format: 7", "has format 7, this lotnet reads 1 to 3: "),
        ("format: 3\nlabelled: 0.1", "unknown setting labelled"),
        ("model: {depth: 10", "not valid YAML"),
        ("- 1", "holds no settings"),
    ],
)
def test_a_wrong_recipe_gives_a_one_sentence_error(tmp_path: Path, text: str, sentence: str) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text)
    with pytest.raises(InputError) as error:
        RunConfig.from_recipe(wrong)
    assert sentence in str(error.value)
    assert "wrong.yaml" in str(error.value)
    assert "\n" not in str(error.value)
