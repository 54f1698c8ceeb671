"""Command lines with a recipe and settings on top of it."""

from pathlib import Path

import pytest

from lotnet.cli.arguments import Parser
from lotnet.cli.main import main
from lotnet.cli.verbs import ablate, selftrain, train
from lotnet.config import RunConfig
from lotnet.errors import InputError
from lotnet.losses import CReg


def config_of(*arguments: str) -> RunConfig:
    return train.read_arguments(list(arguments))[1]


def test_options_are_those_of_the_recipe_with_overrides() -> None:
    assert config_of() == RunConfig.from_recipe("digits/default")
    assert config_of("--data.name", "cifar100") == RunConfig.from_recipe("cifar100/plain")
    overrides = {"model.depth": 20, "model.residual": False, "limit": 9, "data.root": "3", "trainer.threads": None}
    given = [
        "--model.depth=20",
        "--model.residual",
        "false",
        "--limit",
        "9",
        "--data.root",
        "3",
        "--trainer.threads=null",
    ]
    config = config_of("--config=cifar10/plain", *given, "--trainer.threads=null")
    assert config == RunConfig.from_recipe("cifar10/plain", overrides)
    assert config_of("--model.options", "{condition: 10}", "--model.options.tolerance", "1e-4").model.options == {
        "condition": 10.0,
        "tolerance": 1e-4,
    }


def test_an_override_wins_at_any_position() -> None:
    before = config_of("--loss.gamma", "0.3", "--config", "cifar10/creg-hh")
    assert before == config_of("--config", "cifar10/creg-hh", "--loss.gamma", "0.3")
    assert before.loss == CReg(gamma=0.3)
    assert config_of("--seed", "1", "--seed", "2").seed == 2  # the later of two wins


def test_dashes_and_underscores_mean_the_same() -> None:
    assert config_of("--trainer.batch-size", "32", "--data.name=digits") == config_of("--trainer.batch_size=32")
    options, config, _ = train.read_arguments(["--print_model", "--trainer.checkpoint-every=7"])
    assert options.print_model and config.trainer.checkpoint_every == 7
    parser = Parser("lotnet verb")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("names", nargs="*")
    assert parser.read(["--batch-size", "3"]).batch_size == parser.read(["--batch_size=3"]).batch_size == 3
    assert parser.read(["--", "--batch-size"]).names == ["--batch-size"], "not an option"
    with pytest.raises(InputError, match=r"does not know --batch-sizes: did you mean --batch_size\?"):
        parser.read(["--batch-sizes", "3"])


def test_changing_the_kind_keeps_the_settings_that_both_kinds_have() -> None:
    config = config_of("--config", "cifar10/creg-hh", "--model.kind", "lipresnet18", "--loss.kind", "emma")
    assert config.model.activation == "hh1"
    assert config.to_dict()["loss"]["kind"] == "emma"


def test_the_config_of_a_run_gives_the_same_settings(tmp_path: Path) -> None:
    config = config_of("--config", "cifar10/emma", "--model.depth=20", "--seed=5", "--limit=100")
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    options, again, recipe = train.read_arguments(["--config", str(path)])
    assert (again, recipe, options.config) == (config, str(path), str(path))
    old = path.read_text().replace("format: 3", "format: 1").replace("augment: standard", "distort: false")
    path.write_text(old)
    assert config_of("--config", str(path)) == config
    path.write_text(old.replace("format: 1", "format: 7"))
    with pytest.raises(InputError, match=r"config\.yaml has format 7, this lotnet reads 1 to 3"):
        config_of("--config", str(path))


@pytest.mark.parametrize("verb", [train, selftrain, ablate], ids=["train", "selftrain", "ablate"])
def test_a_line_is_parsed_once(verb, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds also with a recipe, kinds and settings, whose names depend on each other."""
    parsed = []
    real = Parser.parse_args
    monkeypatch.setattr(Parser, "parse_args", lambda parser, words: parsed.append(words) or real(parser, words))
    verb.read_arguments(
        ["--config=digits/selftrain" if verb is selftrain else "--loss.kind=emma", "--model.depth", "5"]
    )
    assert len(parsed) == 1


def test_help_lists_all_settings_with_the_values_of_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    for line, words in (
        ("train --config cifar10/creg-hh --help", ("--loss.gamma", "default: hh1", "Weight of the certified radius.")),
        ("train -h --loss.kind emma --model.kind lipresnet18", ("--loss.radius", "Loss (emma)", "Model (lipresnet18)")),
        ("selftrain --help", ("--labeled", "default: 0.1", "--seeds", "--trainer.epochs", "default: 9)")),
        ("ablate residual --help", ("--epochs", "--model.depth", "default: 20", "default: cross-")),
    ):
        with pytest.raises(SystemExit) as ended:
            main(line.split())
        assert ended.value.code == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert [word for word in words if word not in shown] == []
        for name in ("--config", "--out", "--device", "--json", "--seed", "--limit", "--data.name", "--optimizer.lr"):
            assert f"{name} " in shown


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("train --model.depth", "argument --model.depth: expected one argument"),
        ("train --model.dept", "lotnet train does not know --model.dept: did you mean --model.depth?"),
        ("train --devise cpu", "did you mean --device?"),
        ("train --model.depth --limit 5", "argument --model.depth: expected one argument"),
        ("train --trainer.epochs 2.5", "lotnet train: trainer.epochs cannot be '2.5': give a whole number"),
        ("train --trainer.epochs null", "trainer.epochs cannot be null: give a value or leave it out"),
        ("train --data.distort yes", "data.distort cannot be 'yes': give true or false"),
        ("train --optimizer.lr inf", "optimizer.lr cannot be 'inf': give a number"),
        ("train --model.options [1]", "model.options cannot be '[1]': give settings by name"),
        ("train --model.options.tolerance much", "model.options.tolerance cannot be 'much': give a number"),
        ("train --limit 0", "lotnet train: limit must be at least 1, not 0"),
        ("train --model.depth 7", "lotnet train: model.depth must be a multiple of 5"),
        ("train --loss.kind", "argument --loss.kind: expected one argument"),
        ("selftrain --labeled 2", "lotnet selftrain: labeled is 2.0"),
        ("ablate padding --loss.offset 1", "does not know --loss.offset"),
    ],
)
def test_what_is_wrong_gives_a_one_sentence_error(
    line: str, sentence: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert (out, err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_an_old_spelling_is_accepted_with_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert config_of("--data.distort=true").data.augment == "strong"
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "--data.distort is now --data.augment" in err
