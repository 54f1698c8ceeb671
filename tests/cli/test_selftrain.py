"""`lotnet selftrain`: stages that are kept, stopped and resumed, and what is printed of them."""

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
from safetensors.torch import load_file

from lotnet.cli.main import main
from lotnet.cli.verbs.selftrain import read_arguments
from lotnet.cli.verbs.train import read_arguments as read_training
from lotnet.config import recipes
from lotnet.paper import results
from lotnet.paper import tables as paper
from lotnet.runs.checkpoint import read
from lotnet.runs.directory import Run
from lotnet.selftraining.plan import Plan
from lotnet.selftraining.tables import over_seeds

TINY = [
    "--model.channels=4",
    "--limit=200",
    "--labelled=0.25",
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


def test_every_stage_is_kept(root: Path) -> None:
    both = json.loads((root / "selftraining.json").read_text())
    assert both["format"] == 1
    for place, seed in enumerate(SEEDS):
        folder = root / f"seed-{seed}"
        result = both["seeds"][place]
        assert json.loads((folder / "selftraining.json").read_text())["seeds"] == [result]
        assert Plan.from_yaml((folder / "selftraining.yaml").read_text(), "plan").seeds == (int(seed),)
        heading = json.loads((folder / "pseudo-labels.json").read_text())
        labels = load_file(folder / "pseudo-labels.safetensors")
        assert len(labels["labels"]) == len(labels["confidence"]) == result["images"]["unlabelled"] == heading["images"]
        assert heading["teacher_sha256"] == result["teacher"]["checksum"]
        assert heading["teacher"]["config"] == Run.open(folder / "teacher").config.to_dict()
        assert len(Run.open(folder / "teacher").metrics()) == 3
        assert len(Run.open(folder / "student").metrics()) == 2
        for who in ("teacher", "student"):
            certificates = json.loads((folder / who / "certificates.json").read_text())
            assert certificates["summary"]["certified"]["float"] == result[who]["certified"]
            assert certificates["split"] == "test"
        measured = result["measured"]
        assert measured["disagreement"]["among"] == measured["wrong_pseudo_labels"]["among"] == heading["images"]
        assert len(result["theorems"]) == 3
    assert weights(root / "seed-0/student").keys() == weights(root / "seed-0/teacher").keys()


def test_resuming_what_is_finished_repeats_nothing_and_prints_it_again(root: Path, capsys) -> None:
    def times() -> dict[Path, int]:
        files = (file for file in root.rglob("*") if file.is_file() and file != root / "selftraining.json")
        return {file: file.stat().st_mtime_ns for file in files}

    before = times()
    assert main(["selftrain", "--resume", str(root)]) == 0
    assert times() == before
    out = capsys.readouterr().out
    for words in ("mean ± standard deviation of 2 seeds", "teacher", "difference", "108/255", "not proved constant"):
        assert words in out
    assert "epoch" not in out
    assert out.count("is done already") == 2
    assert main(["selftrain", "--resume", str(root / "seed-7"), "--json"]) == 0
    assert [result["seed"] for result in json.loads(capsys.readouterr().out)["seeds"]] == [7]


def test_stopped_in_the_students_training_it_goes_on_to_the_same_bits(root: Path, tmp_path: Path) -> None:
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
    for who in ("teacher", "student"):
        one, other = weights(root / "seed-0" / who), weights(path / who)
        assert all(torch.equal(one[name], other[name]) for name in one)
    found, expected = (json.loads((p / "selftraining.json").read_text()) for p in (path, root / "seed-0"))
    assert found == expected


def test_a_student_is_not_kept_for_other_labels_than_it_learned_from(root: Path, tmp_path: Path, capsys) -> None:
    path = tmp_path / "run"
    shutil.copytree(root / "seed-0", path)
    (path / "selftraining.json").write_text("{")
    for gone, words in (
        ((), "is damaged or of another version: delete it"),
        (("selftraining.json", "pseudo-labels.json"), "student was trained on pseudo-labels that are gone: delete it"),
    ):
        for name in gone:
            (path / name).unlink()
        assert main(["selftrain", "--resume", str(path)]) == 2
        sentence = capsys.readouterr().err
        assert words in sentence and sentence.count("\n") == 1
    assert main(["selftrain", "--out", str(path)]) == 2
    assert f"exists: continue it with --resume {path}" in capsys.readouterr().err


def test_a_stage_is_not_a_training_of_its_own(root: Path, capsys) -> None:
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


def test_mean_and_spread_are_over_seeds_and_differences_within_them() -> None:
    def result(teacher: float, student: float) -> dict:
        return {"radii": [36 / 255]} | {
            who: {"clean": x, "certified": [x / 2], "mean_radius": x / 4}
            for who, x in (("teacher", teacher), ("student", student))
        }

    summary = over_seeds([result(0.4, 0.5), result(0.6, 0.7)])
    assert summary["columns"] == ["clean", "36/255", "mean radius"]
    assert summary["mean"]["difference"] == pytest.approx([0.1, 0.05, 0.025])
    assert summary["spread"]["difference"] == pytest.approx([0, 0, 0])
    assert summary["spread"]["teacher"][0] == pytest.approx(0.02**0.5)
    assert over_seeds([result(0.4, 0.5)])["spread"]["student"] == [None, None, None]


@pytest.mark.parametrize("name", [name for name in recipes() if name.endswith("/selftrain")])
def test_its_recipes(name: str) -> None:
    _, plan, _ = read_arguments(["--config", name])
    assert plan.selftraining.labelled == 0.1
    assert Plan.from_yaml(plan.to_yaml(), name) == plan
    assert read_arguments(["--data.name", name.split("/")[0]])[1] == plan


def test_what_the_paper_prints_can_be_read() -> None:
    rows = [row for row in paper.rows() if row.setting == "semi-supervised"]
    assert len(rows) == 24
    assert all(paper.command_for(row).startswith("lotnet selftrain --config cifar10/") for row in rows)
    for row in rows[::7]:
        _, _, *words = shlex.split(paper.command_for(row))
        _, plan, _ = read_arguments(words)
        recipe, overrides = paper.recipe_for(row)
        assert plan.training == read_training(["--config", recipe, *paper.arguments(overrides)])[1]
        assert (plan.selftraining.labelled, plan.selftraining.unlabelled) == (None, paper.UNLABELLED)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--config digits/default", "no unlabelled images"),
        ("--labelled 1", "between 0 and 1"),
        ("--labelled 0.005", "without the two labels it needs"),
        ("--trainer.batch_size 512", "labelled images do not fill one batch"),
        ("--unlabelled nowhere", "nowhere does not exist"),
        ("--seeds 0", "how many (3) or which (0 1 2)"),
        ("--seeds 1 1", "different numbers"),
        ("--trainer.devices 2", "one process"),
        ("--labeled 0.1", "did you mean --labelled?"),
        ("--resume nowhere", "nowhere holds no self-training"),
        ("--resume nowhere --labelled 0.2", "leave --labelled out"),
        ("--out .", "no self-training: choose another --out"),
        ("--limit 20", "add images of that class, or raise --limit"),
    ],
)
def test_bad_input_is_one_sentence(line: str, sentence: str, tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "thesis.tex").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["selftrain", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert (out, err.count("\n")) == ("", 1)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]
