"""`lotnet.train`: the command as one function call."""

from collections.abc import Callable
from pathlib import Path

import pytest

import lotnet
from lotnet.cli.main import main
from lotnet.cli.verbs.train import read_arguments
from lotnet.config import OptimizerConfig, RunConfig, TrainerConfig
from lotnet.errors import InputError
from lotnet.runs.directory import Run
from runs import assert_same

TINY = {"model.channels": 4, "limit": 100, "trainer.batch_size": 32, "trainer.epochs": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return lotnet.train("digits/default", tmp_path_factory.mktemp("train") / "run", quiet=True, **TINY)


def test_a_call_writes_what_the_command_writes(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "command"
    assert main(["train", *(f"--{name}={value}" for name, value in TINY.items()), "--out", str(path)]) == 0
    assert (path / "config.yaml").read_bytes() == (run.path / "config.yaml").read_bytes()
    assert_same(path, run.path)
    assert run.is_finished()


def test_the_config_of_a_run_repeats_it(run: Run, tmp_path: Path) -> None:
    """The config is given as a file or as an object, without other settings."""
    assert_same(lotnet.train(run.path / "config.yaml", tmp_path / "file", quiet=True).path, run.path)
    assert_same(lotnet.train(run.config, tmp_path / "object", quiet=True).path, run.path)


def test_resuming_continues_or_starts(run: Run, tmp_path: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in run.path.rglob("*.safetensors")}
    assert lotnet.train(out=run.path, resume=True, quiet=True).config == run.config
    assert lotnet.train("digits/default", run.path, resume=True, quiet=True, **TINY).config == run.config
    assert {file: file.stat().st_mtime_ns for file in run.path.rglob("*.safetensors")} == before
    with pytest.raises(InputError, match="was trained with other settings"):
        lotnet.train("digits/default", run.path, resume=True, quiet=True, **{**TINY, "seed": 1})
    started = lotnet.train(run.config, tmp_path / "new", resume=True, quiet=True)
    assert started.is_finished()


def test_a_call_prints_nothing_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lotnet.train("digits/default", tmp_path / "run", **TINY)
    out, err = capsys.readouterr()
    assert out == ""
    assert "epoch 1/1" in err


def test_bad_input_leaves_nothing_behind(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for recipe, arguments, words in (
        ("digits/default", {"model.dept": 5}, "unknown setting model.dept: did you mean model.depth"),
        ("digits/default", {"model.depth": 7}, "model.depth must be a multiple of 5"),
        ("digits/defualt", {}, "did you mean digits/default"),
        ("digits/default", {"limit": 5}, "do not fill one batch"),
        ("digits/selftrain", {}, "use `lotnet selftrain"),
        (RunConfig(), {"device": "tpu"}, "there is no device tpu"),
        (None, {"resume": True}, "give out"),
        (None, {"resume": True, "out": "nowhere"}, "nowhere holds no run"),
        (run.config, {"resume": True, "out": "run", "overwrite": True}, "leave overwrite out"),
        (run.config, {"out": run.path}, "exists"),
    ):
        with pytest.raises(InputError, match=words):
            lotnet.train(recipe, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_stage_of_self_training_is_not_continued_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "selftraining.yaml").touch()
    Run.create(tmp_path / "student", run.config)
    with pytest.raises(InputError, match=f"use `lotnet selftrain --resume {tmp_path}`"):
        lotnet.train(out=tmp_path / "student", resume=True)
    with pytest.raises(InputError, match="use `lotnet selftrain"):
        lotnet.train(run.config, tmp_path / "student", resume=True)


def test_a_call_records_the_command_that_repeats_it(run: Run) -> None:
    words = run.environment().sessions[0].command
    assert words[:4] == ["lotnet", "train", "--config", "digits/default"]
    _, config, _ = read_arguments(words[2:])
    assert config == run.config


def test_a_call_that_resumes_a_run_records_the_command_that_does(run: Run, tmp_path: Path) -> None:
    stopped = Run.create(tmp_path / "run", run.config)  # as if it had been killed before its first step
    lotnet.train(out=stopped.path, resume=True, quiet=True)
    assert stopped.environment().sessions[-1].command == ["lotnet", "train", "--resume", str(stopped.path)]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (lambda: RunConfig(optimizer=OptimizerConfig(name="adam")), "optimizer.name cannot be 'adam'"),
        (lambda: RunConfig(trainer=TrainerConfig(precision="bf16")), "trainer.precision cannot be 'bf16'"),
    ],
)
def test_settings_made_in_python_are_checked(settings: Callable[[], RunConfig], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        settings()
