"""All settings of a run: overrides, files of both formats, and fingerprints that stay as they are."""

import doctest
import subprocess
import sys

import pytest

from lotnet.config import RunConfig, TrainerConfig, recipes, run
from lotnet.config.formats import RENAMED, Renaming
from lotnet.errors import InputError
from lotnet.losses import EMMA, CReg, LogitAnnealing, OffsetCrossEntropy
from lotnet.models import LipConvnet, LipResNet18

FORMAT_1 = """\
format: 1
data: {name: digits, root: null, side: null, distort: false}
model:
  kind: lipconvnet
  parametrization: lot
  options: {condition: 10.0}
  activation: hh1
  padding_mode: zeros
  start: identity
  gamma: 1.0
  head: orthogonal
  depth: 5
  channels: 16
  residual: true
  mix: 0.5
  trainable_mix: false
  dense_layers: 0
loss: {kind: offset, offset: 0.4, temperature: 0.1}
optimizer:
  name: nadam
  lr: 0.02
  momentum: 0.9
  nesterov: false
  weight_decay: 0.0
  schedule: onecycle
  warmup: 0.15
  clip: 0.0
trainer:
  epochs: 30
  batch_size: 128
  precision: tf32
  ema: 0.0
  radius: 0.2823529411764706
  cuda_graph: true
  share_polar: true
  checkpoint_every: 0
  threads: 1
  devices: 2
  nodes: 1
seed: 0
limit: null
"""
"""A config.yaml as lotnet wrote it when there was one format."""

FINGERPRINTS = {
    "cifar10/best": "7511f24f6b173e58",
    "cifar10/creg-hh": "51d9d8a1e84a5740",
    "cifar10/emma": "886c9a111c30d231",
    "cifar10/offset": "be4c9f29fd796969",
    "cifar10/plain": "b25336ff0d4547b6",
    "cifar10/resnet18": "8a7fc5643fb6ff42",
    "cifar100/creg-hh-lln": "7063fc3b7a08856e",
    "cifar100/plain": "1a12f374649900d7",
    "digits/default": "2e0cce43587d24a2",
    "tiny-imagenet/plain": "c6c0410d1e4c3b7e",
    "tiny-imagenet/resnet18": "080822551a2ebb7f",
}
"""Of the packaged recipes, computed at commit ae195c3: checkpoints of that time carry them."""


@pytest.mark.parametrize(
    ("settings", "fingerprint"),
    [
        ({}, "6234de776e181e9e"),
        (
            {
                "model": {"depth": 10, "activation": "hh1", "head": "lln"},
                "loss": {"kind": "offset"},
                "optimizer": {"name": "nadam", "lr": 2e-3, "schedule": "onecycle"},
                "trainer": {"epochs": 60, "batch_size": 64},
            },
            "fe784c4f87a67d79",  # what the recipe folder/default was
        ),
        ({"model": {"options": {"condition": 10, "tolerance": 1e-4}}, "limit": 7, "seed": 3}, "ff4ff50aa015bdaf"),
        ({"trainer": {"devices": 2, "ema": 0.999}}, "c2b8277db44b7904"),
        (
            {
                "data": {"name": "tiny-imagenet"},
                "model": {"kind": "lipresnet18", "channels": 8},
                "loss": {"kind": "emma", "temperature": 1},
            },
            "44131eb58184e816",
        ),
        (
            {
                "model": {"parametrization": "soc", "residual": False, "depth": 20, "mix": 1},
                "optimizer": {"lr": 1, "clip": 2},
            },
            "8126b9ffa1494529",
        ),
    ],
)
def test_fingerprints_are_those_of_format_1(settings: dict, fingerprint: str) -> None:
    """Computed at commit ae195c3 from the same settings."""
    assert RunConfig.from_dict(settings, "record").fingerprint() == fingerprint


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_fingerprints_of_recipes(name: str) -> None:
    assert RunConfig.from_recipe(name).fingerprint() == FINGERPRINTS[name]


def test_every_recipe_has_a_fingerprint_here() -> None:
    assert FINGERPRINTS.keys() <= set(recipes())


def test_format_1_is_read_with_current_names(recwarn: pytest.WarningsRecorder) -> None:
    config = RunConfig.from_yaml(FORMAT_1, "config.yaml")
    assert config.trainer == TrainerConfig(30, 128, radius=72 / 255, threads=1, devices=2)
    assert config.loss == OffsetCrossEntropy(0.4, 0.1)
    assert config.fingerprint() == "c402774118ac7ebe"
    text = config.to_yaml()
    assert text.startswith("format: 3\n")
    assert "share_polar" not in text
    assert "distort" not in text
    assert RunConfig.from_yaml(text, "config.yaml") == config
    assert len(recwarn) == 0  # nobody can change what a finished run says


def test_an_unknown_format_is_refused_by_name() -> None:
    for line, words in (("format: 7", "has format 7"), ("format: true", "has format True"), ("", "has no format")):
        with pytest.raises(InputError, match=f"^config.yaml {words}.*, this lotnet reads 1 to 3: .* or train again$"):
            RunConfig.from_yaml(FORMAT_1.replace("format: 1", line), "config.yaml")
    with pytest.raises(InputError, match=r"unknown setting trainer\.share_polar"):
        RunConfig.from_yaml(FORMAT_1.replace("format: 1", "format: 2"), "config.yaml")


@pytest.mark.parametrize("share", ("true", "false"))
def test_the_choice_to_share_the_orthogonalization_became_a_rule(share: str, recwarn: pytest.WarningsRecorder) -> None:
    old = RunConfig().to_yaml().replace("  threads:", f"  share_orthogonalization: {share}\n  threads:")
    assert RunConfig.from_yaml(old, "config.yaml") == RunConfig()
    assert len(recwarn) == 0


def test_an_old_setting_in_a_recipe_is_accepted_with_a_warning(tmp_path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("trainer: {share_polar: true}")
    with pytest.warns(FutureWarning, match="mine.yaml: trainer.share_polar has no effect any more"):
        assert RunConfig.from_recipe(mine) == RunConfig()
    with pytest.warns(FutureWarning, match="has no effect any more"):
        assert RunConfig().override({"trainer.share_orthogonalization": True}) == RunConfig()
    mine.write_text("data: {distort: true, augment: strong}")
    with pytest.warns(FutureWarning, match="is now"), pytest.raises(InputError, match=r"keep data\.augment"):
        RunConfig.from_recipe(mine)


def test_the_switch_distort_became_a_kind_of_augmentation() -> None:
    """Fingerprints were computed before, from `distort` true and false."""
    for version in (1, 2):
        for switch, kind, fingerprint in (
            (False, "standard", "2e0cce43587d24a2"),
            (True, "strong", "1e31cfb7d646105f"),
        ):
            text = RunConfig.from_recipe("digits/default").to_yaml().replace("format: 3", f"format: {version}")
            config = RunConfig.from_yaml(text.replace("augment: standard", f"distort: {str(switch).lower()}"), "old")
            assert (config.data.augment, config.fingerprint()) == (kind, fingerprint)
    with pytest.warns(FutureWarning, match=r"data\.distort is now data\.augment"):
        assert RunConfig().override({"data.distort": "true"}).data.augment == "strong"
    assert RunConfig().override({"data.augment": "none"}).fingerprint() not in ("2e0cce43587d24a2", "1e31cfb7d646105f")


def test_a_removed_setting_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RENAMED, "trainer.magic", Renaming(None, 1))
    monkeypatch.setitem(RENAMED, "loss.on", Renaming("data.on", 1))  # a group that the file does not have
    content = {"format": 1, "trainer": {"magic": 3, "epochs": 2}}
    assert RunConfig.from_dict(content, "old") == RunConfig(trainer=TrainerConfig(epochs=2))
    with pytest.warns(FutureWarning, match="trainer.magic has no effect any more"):
        assert RunConfig().override({"trainer.magic": 3}) == RunConfig()
    with pytest.raises(InputError, match=r"unknown setting data\.on"):
        RunConfig.from_dict({"loss": {"kind": "creg", "on": "margin"}}, "old")


def test_overrides_change_what_they_name() -> None:
    config = RunConfig().override({"model.depth": 20, "trainer.epochs": "3", "trainer.radius": "72/255", "limit": None})
    assert config == RunConfig(model=LipConvnet(depth=20), trainer=TrainerConfig(epochs=3, radius=72 / 255))
    assert config.override({}) == config
    options = config.override({"model.options": {"condition": 10}}).override({"model.options.tolerance": 1e-4})
    assert options.model.options == {"condition": 10.0, "tolerance": 1e-4}
    with pytest.raises(InputError, match=r"unknown setting model\.dept: did you mean model\.depth"):
        config.override({"model.dept": 20})
    with pytest.raises(InputError, match=r"model\.depth cannot be true: give a whole number"):
        config.override({"model.depth": True})
    with pytest.raises(InputError, match="seed cannot be null"):
        config.override({"seed": None})
    with pytest.raises(InputError, match=r"asks for an unknown loss\.kind emmma: did you mean emma"):
        config.override({"loss.kind": "emmma"})


def test_changing_the_kind_keeps_changed_settings_but_no_defaults() -> None:
    config = RunConfig(loss=OffsetCrossEntropy(offset=0.8), model=LipConvnet(channels=8, depth=10))
    assert config.override({"loss.kind": "annealing"}).loss == LogitAnnealing(offset=0.8)  # and its own temperature
    assert config.override({"loss.kind": "emma"}).loss == EMMA()
    assert config.override({"model.kind": "lipresnet18"}).model == LipResNet18(channels=8)


def test_settings_for_others_hold_no_local_path() -> None:
    usual = RunConfig.from_recipe("digits/default")
    assert usual.to_public_dict() == usual.to_dict()
    local = {"data.name": "folder:/home/me/images", "data.root": "~/cache", "init": "/home/me/runs/first"}
    settings = usual.override(local).to_public_dict()
    public = {"data.name": "folder:images", "data.root": "cache", "init": "first"}
    assert settings == usual.override(public).to_dict()
    assert usual.override({"init": "runs/first"}).to_public_dict()["init"] == "runs/first"


def test_errors_name_their_source() -> None:
    for settings, words in (
        ({"model": {"depth": 7}}, "mine: model.depth must be a multiple of 5"),
        ({"limit": 0}, "mine: limit must be at least 1"),
        ({"model": {"parametrization": "soc", "start": "quasi-residual"}}, "mine: model.start quasi-residual"),
    ):
        with pytest.raises(InputError, match=words):
            RunConfig.from_dict(settings, "mine")


def test_reading_a_file_builds_no_parser() -> None:
    program = (
        "import sys; from lotnet.config import RunConfig; config = RunConfig.from_recipe('digits/default'); "
        "RunConfig.from_yaml(config.to_yaml(), 'x'); from lotnet.selftraining import plan; "
        "print([name for name in ('jsonargparse', 'lotnet.cli') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_examples() -> None:
    assert doctest.testmod(run).attempted >= 2
    assert doctest.testmod(run).failed == 0


def test_a_changed_default_closes_no_run() -> None:
    """Fingerprints of logit annealing at its first defaults and with its own offset, computed at commit c9d2d95."""
    first = {"kind": "annealing", "offset": 2.0, "temperature": 0.75, "beta": 5.0}
    assert RunConfig.from_dict({"loss": first}, "old").fingerprint() == "8f991e2c5f29f733"
    assert RunConfig.from_dict({"loss": first | {"offset": 0.6}}, "old").fingerprint() == "d656089c2316e75c"
    now = RunConfig(loss=LogitAnnealing())
    assert now.fingerprint() not in ("8f991e2c5f29f733", "d656089c2316e75c")
    assert RunConfig.from_yaml(now.to_yaml(), "new").fingerprint() == now.fingerprint()
    assert RunConfig.from_dict({"loss": first}, "old").override({"seed": 1}).loss == LogitAnnealing(2.0, 0.75)


def test_adding_a_setting_keeps_runs_compatible_with_their_checkpoints() -> None:
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
