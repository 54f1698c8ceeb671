"""The command line, through real processes where that is the point."""

import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from lotnet.cli.main import VERBS, main
from lotnet.losses import LOSSES, CrossEntropy
from lotnet.paper import tables as paper
from lotnet.runs.checkpoint import Checkpoints
from lotnet.runs.directory import Run

TINY = ["--model.channels=4", "--limit=100", "--trainer.batch_size=32", "--trainer.epochs=3"]

TYPOS = {
    "trian": "there is no verb trian: did you mean train?",
    "train --model.dept 20": "does not know --model.dept: did you mean --model.depth?",
    "train --depth 20": "did you mean --model.depth?",
    "train --model.depth deep": "model.depth cannot be 'deep': give a whole number",
    "train --model.depth 7": "depth must be a multiple of 5",
    "train --loss.kind emma --loss.temperature 0": "loss.temperature must be positive, not 0.0",
    "train --loss.kind offset --loss.offset -1": "loss.offset must be at least 0, not -1.0",
    "train --model.activation relu": "give one of maxmin, hh1, hh2",
    "train --model.kind resnet": "unknown model.kind resnet",
    "train --model.options.tolerence 1": "lot has no setting tolerence: choose among tolerance, condition",
    "train --config cifar10/creghh": "there is no recipe cifar10/creghh: did you mean cifar10/creg-hh?",
    "train --config none.yaml": "cannot read none.yaml",
    "train --config": "expected one argument",
    "train --data.name digit": "there is no data set 'digit'",
    "train --resume nowhere": "nowhere holds no run",
    "train --device tpu": "there is no device tpu",
    "train --limit 0": "limit must be at least 1",
    "train --limit 5": "do not fill one batch",
    "train --trainer.devices 3": "cannot be shared by 3 processes",
    "train digits": "does not know digits",
    "data lits": "did you mean list?",
    "data prepare": "say which data set to prepare",
    "data prepare cifar11": "there is no data set 'cifar11'",
    "paper table9": "the paper has no table table9",
}


@pytest.mark.parametrize("line", TYPOS)
def test_a_typo_gives_a_one_sentence_error(line: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert TYPOS[line] in err
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("lotnet")
    assert list(tmp_path.iterdir()) == []


def test_typos_through_real_processes(tmp_path: Path) -> None:
    lines = ["train --model.dept 20", "train --model.depth deep", "trian", "train --config cifar10/creghh"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "lotnet", *line.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for line in lines
    ]
    for line, process in zip(lines, processes, strict=True):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 2
        assert (out, err.count("\n")) == ("", 1)
        assert TYPOS[line] in err


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_shows_defaults(verb: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert "default" in capsys.readouterr().out


def test_help_and_version(capsys) -> None:
    assert main([]) == 0
    assert all(verb in capsys.readouterr().out for verb in ["train"])
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("lotnet ")


def test_help_shows_the_recipes_values(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--config", "cifar10/creg-hh", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "--loss.gamma" in out
    assert "default: hh1" in out


def test_train_writes_a_run_that_can_be_read_back(tmp_path: Path, capsys) -> None:
    path = tmp_path / "run"
    assert main(["train", *TINY, "--out", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["run"] == str(path)
    assert set(result["test"]["certified"]) == {"36/255", "72/255", "108/255"}
    assert "epoch 3/3" in err
    run = Run.open(path)
    assert len(run.metrics()) == 3
    assert run.classes() == tuple("0123456789")
    assert run.best_model()(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    environment = json.loads((path / "environment.json").read_text())
    assert environment["parameters"] == sum(p.numel() for p in run.best_model().parameters())
    assert {"command", "commit", "hardware", "started", "versions"} <= environment["sessions"][0].keys()

    before = (path / "config.yaml").read_bytes()
    assert main(["train", *TINY, "--out", str(path)]) == 2
    assert f"--resume {path}" in capsys.readouterr().err
    assert main(["train", "--resume", str(path), "--trainer.epochs", "9"]) == 2
    assert "leave --trainer.epochs out" in capsys.readouterr().err
    assert (path / "config.yaml").read_bytes() == before
    assert main(["train", *TINY, "--out", str(path), "--overwrite", "--seed", "1"]) == 0
    assert Run.open(path).config.seed == 1


def test_overwrite_removes_runs_only(tmp_path: Path, capsys) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert main(["train", *TINY, "--out", str(tmp_path), "--overwrite"]) == 2
    assert "is not a run and is not overwritten" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").exists()
    assert main(["train", *TINY, "--out", str(tmp_path / "thesis.tex")]) == 2
    assert "is a file" in capsys.readouterr().err


def test_runs_are_numbered(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["train", *TINY, "--trainer.epochs=1"]) == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["digits-default-1", "digits-default-2"]


def test_print_model(capsys) -> None:
    assert main(["train", "--print-model", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["layers"][-1]["shape"] == [10]
    assert main(["train", "--print-model"]) == 0
    assert f"{shown['parameters']:,} parameters" in capsys.readouterr().out


@dataclass(frozen=True)
class Broken(CrossEntropy):
    """A loss that is NaN from the second of three epochs on."""

    def __call__(self, logits, labels, lipschitz, pairwise, progress):
        value = super().__call__(logits, labels, lipschitz, pairwise, progress)
        return value * float("nan") if progress >= 0.4 else value


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(LOSSES, "broken", Broken)
    path = tmp_path / "run"
    assert main(["train", *TINY, "--loss.kind=broken", "--out", str(path)]) == 2
    assert "no longer finite in step 2 of epoch 2" in capsys.readouterr().err
    assert len(Run.open(path).metrics()) == 1
    assert all(torch.isfinite(p).all() for p in Run.open(path).best_model().parameters())
    assert len(Checkpoints(path / "checkpoints").steps()) == 1


def test_a_full_disk_gives_a_one_sentence_error_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run"
    command = [sys.executable, "-m", "lotnet", "train", *TINY, "--out", str(path)]
    # The limit on the size of a file: settings fit, a checkpoint does not.
    size = 20_000
    full = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert full.returncode == 2, full.stderr
    assert "cannot write" in full.stderr
    assert "Traceback" not in full.stderr
    assert list((path / "checkpoints").iterdir()) == []
    assert main(["train", "--resume", str(path)]) == 0
    assert len(Run.open(path).metrics()) == 3


def test_data_list(capsys) -> None:
    assert main(["data", "--json"]) == 0
    sets = {item["name"]: item for item in json.loads(capsys.readouterr().out)}
    assert sets["digits"]["ready"]
    assert main(["data", "list"]) == 0
    assert "folder:PATH" in capsys.readouterr().out


def test_data_prepare_says_where_it_looked(tmp_path: Path, capsys) -> None:
    assert main(["data", "prepare", "cifar10", "--from", str(tmp_path), "--root", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_paper_prints_its_rows_and_commands(capsys) -> None:
    assert main(["paper", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(paper.rows())
    assert all(row["command"].startswith("lotnet ") for row in rows)
    assert main(["paper", "abl-padding"]) == 0
    out = capsys.readouterr().out
    assert "76.65" in out
    assert "lotnet train --config cifar10/plain --model.depth 20 --model.padding_mode circular" in out
