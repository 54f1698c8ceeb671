"""`lotnet selftrain`: its arguments, its signals, and what it prints."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lotnet.cli.main import main
from lotnet.cli.verbs.selftrain import read_arguments
from lotnet.cli.verbs.train import read_arguments as read_training
from lotnet.config import recipes
from lotnet.paper import results
from lotnet.paper import tables as paper
from lotnet.runs.checkpoint import read
from lotnet.runs.directory import Run
from lotnet.selftraining.plan import Plan

TINY = [
    "--model.channels=4",
    "--limit=200",
    "--labeled=0.25",
    "--trainer.batch_size=16",
    "--trainer.epochs=2",
    "--teacher_epochs=3",
    "--trainer.checkpoint_every=2",
]
SEEDS = ("0", "7")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds, uninterrupted."""
    path = tmp_path_factory.mktemp("selftrain") / "both"
    assert main(["selftrain", *TINY, "--seeds", *SEEDS, "--out", str(path)]) == 0
    return path


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read(Run.open(run).checkpoints.best)[1]


def test_resuming_a_finished_pipeline_prints_its_results_again(root: Path, capsys) -> None:
    capsys.readouterr()
    assert main(["selftrain", "--resume", str(root)]) == 0
    out = capsys.readouterr().out
    for words in ("mean ± standard deviation of 2 seeds", "teacher", "difference", "108/255", "not proved constant"):
        assert words in out
    assert "epoch" not in out
    assert out.count("is done already") == 2
    assert main(["selftrain", "--resume", str(root / "seed-7"), "--json"]) == 0
    assert [result["seed"] for result in json.loads(capsys.readouterr().out)["seeds"]] == [7]


def test_a_pipeline_stopped_while_training_a_student_resumes_to_the_same_bits(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    command = [sys.executable, "-m", "lotnet", "selftrain", *TINY, "--out", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not (path / "student/environment.json").exists() and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"lotnet selftrain --resume {path}" in out
    assert "Traceback" not in out
    assert main(["selftrain", "--resume", str(path)]) == 0
    for stage in ("teacher", "student"):
        one, other = weights(root / "seed-0" / stage), weights(path / stage)
        assert all(torch.equal(one[name], other[name]) for name in one)
    found, expected = (json.loads((p / "selftraining.json").read_text()) for p in (path, root / "seed-0"))
    assert found == expected


def test_a_directory_that_cannot_be_continued_gives_a_one_sentence_error(root: Path, tmp_path: Path, capsys) -> None:
    path = tmp_path / "run"
    shutil.copytree(root / "seed-0", path)
    (path / "selftraining.json").write_text("{")
    for gone, words in (
        ((), "is damaged (it is not JSON): delete it"),
        (("selftraining.json", "pseudo-labels.json"), "student was trained on pseudo-labels that are gone: delete it"),
    ):
        for name in gone:
            (path / name).unlink()
        assert main(["selftrain", "--resume", str(path)]) == 2
        sentence = capsys.readouterr().err
        assert words in sentence and sentence.count("\n") == 1
    assert main(["selftrain", "--out", str(path)]) == 2
    assert f"exists: continue it with --resume {path}" in capsys.readouterr().err


def test_a_stage_cannot_be_trained_by_lotnet_train(root: Path, capsys) -> None:
    assert main(["train", "--resume", str(root / "seed-0/student")]) == 2
    assert f"use `lotnet selftrain --resume {root / 'seed-0'}`" in capsys.readouterr().err
    assert main(["train", "--config", "digits/selftrain"]) == 2
    assert "use `lotnet selftrain --config digits/selftrain`" in capsys.readouterr().err


def test_a_student_is_not_compared_with_a_supervised_row() -> None:
    config = read_arguments(["--config", "cifar10/selftrain"])[1].stage("student", 0)
    assert results.row_like(config) is not None
    numbers = dict.fromkeys(("parameters", "epochs", "best_epoch", "train_seconds", "evaluation_seconds"), 0)
    rest = {"sessions": [], "evaluation_device": "", "checksum": "", "summary": {}, "audit": []}
    made = results.Result("student", "lotnet selftrain --config x", config.to_dict(), **numbers, **rest)
    assert results.paper_row(made) is None


@pytest.mark.parametrize("name", [name for name in recipes() if name.endswith("/selftrain")])
def test_self_training_recipes(name: str) -> None:
    _, plan, _ = read_arguments(["--config", name])
    assert plan.selftraining.labeled == 0.1
    assert Plan.from_yaml(plan.to_yaml(), name) == plan
    assert read_arguments(["--data.name", name.split("/")[0]])[1] == plan


def test_the_old_spelling_is_accepted_with_one_line_on_stderr(tmp_path: Path, capsys) -> None:
    _, plan, _ = read_arguments(["--labelled", "0.2", "--unlabelled=OTHER", "--ball", "72/255"])
    assert (plan.selftraining.labeled, plan.selftraining.unlabeled, plan.selftraining.ball) == (0.2, "OTHER", 72 / 255)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("lotnet selftrain: --labelled is now --labeled: ")
    mine = tmp_path / "mine.yaml"
    mine.write_text("labelled: 0.3\n")
    assert read_arguments(["--config", str(mine)])[1].selftraining.labeled == 0.3
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"lotnet: {mine}: labelled is now labeled: ")
    assert read_arguments(["--labeled", "0.2"])[1].selftraining.labeled == 0.2
    assert capsys.readouterr().err == ""


def test_self_training_commands_of_the_paper_can_be_parsed() -> None:
    rows = [row for row in paper.rows() if row.setting == "semi-supervised"]
    assert len(rows) == 24
    assert all(paper.command_for(row).startswith("lotnet selftrain --config cifar10/") for row in rows)
    for row in rows[::7]:
        _, _, *words = shlex.split(paper.command_for(row))
        _, plan, _ = read_arguments(words)
        recipe, overrides = paper.recipe_for(row)
        assert plan.training == read_training(["--config", recipe, *paper.arguments(overrides)])[1]
        assert (plan.selftraining.labeled, plan.selftraining.unlabeled) == (None, paper.UNLABELED)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--config digits/default", "no unlabeled images"),
        ("--labeled 1", "between 0 and 1"),
        ("--labeled 0.005", "without the two labels it needs"),
        ("--trainer.batch_size 512", "labeled images do not fill one batch"),
        ("--unlabeled nowhere", "nowhere does not exist"),
        ("--seeds 0", "how many (3) or which (0 1 2)"),
        ("--seeds 1 1", "different numbers"),
        ("--trainer.devices 2", "one process"),
        ("--labled 0.1", "did you mean --labeled?"),
        ("--resume nowhere", "nowhere holds no self-training"),
        ("--resume nowhere --labeled 0.2", "leave --labeled out"),
        ("--out .", "no self-training: choose another --out"),
        ("--limit 20", "add images of that class, or raise --limit"),
    ],
)
def test_bad_input_gives_a_one_sentence_error(line: str, sentence: str, tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "thesis.tex").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["selftrain", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert (out, err.count("\n")) == ("", 1)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]
