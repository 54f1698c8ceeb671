"""The tables and figures of candidates: what is measured, and what a page says of it."""

from pathlib import Path

import pytest
import torch
import yaml

import beyond
import beyond_figure
import step_times
from lotnet import train
from run_queue import read_entries

TINY = "train --config digits/default --limit 200 --trainer.batch_size 32"


def candidate(name: str, clean: float, against: str | None = None) -> beyond.Candidate:
    accuracy = dict.fromkeys(beyond.COLUMNS, clean)
    return beyond.Candidate(name, "more", against, "lotnet train", 3, 120.0, "a GPU", None, 1_500_000, accuracy)


def test_epochs_fit_into_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = step_times.Cost(step=0.01, batch=0.002, validation=0.4, steps=50, parameters=1, peak_bytes=0)
    assert found.epochs(10.5) == 10 and found.epochs(0.1) == 1
    item = {"name": "a", "command": f"{TINY} --trainer.epochs 6"}
    assert step_times.with_epochs(item, 9)["command"] == f"{TINY} --trainer.epochs 9"
    assert step_times.with_epochs({"command": "train"}, 9)["command"] == "train --trainer.epochs 9"
    (tmp_path / "list.yaml").write_text(yaml.safe_dump([item]))
    (entry,) = read_entries(tmp_path / "list.yaml")
    assert entry.settings == {
        "config": "digits/default",
        "limit": "200",
        "trainer.batch_size": "32",
        "trainer.epochs": "6",
    }
    measured = step_times.measure(entry, "cpu", seconds=1e6)
    assert measured is not None and measured > 100

    def fails(*_: object) -> step_times.Cost:
        raise torch.OutOfMemoryError("no memory\nmore")

    monkeypatch.setattr(step_times, "cost", fails)
    assert step_times.measure(entry, "cpu", seconds=1) is None
    assert "failed: no memory\n" in capsys.readouterr().out


def test_finished_runs_are_collected_with_the_means_of_their_last_epochs(tmp_path: Path) -> None:
    item = {"name": "a", "ingredient": "more", "command": TINY}
    assert beyond.candidate(item, tmp_path) is None
    small = {"model.channels": 4, "limit": 100, "trainer.batch_size": 32, "trainer.epochs": 7}
    metrics = train("digits/default", tmp_path / "a", device="cpu", quiet=True, **small).metrics()
    found = beyond.candidate(item, tmp_path)
    assert found is not None and found.accuracy.keys() == set(beyond.COLUMNS)
    assert found.accuracy["clean"] == round(sum(record.clean for record in metrics[2:]) / 5, 5)
    assert found.accuracy["36/255"] == round(sum(record.certified["36/255"] for record in metrics[2:]) / 5, 5)
    command = "--config digits/default --model.channels 4 --limit 100 --trainer.batch_size 32 --trainer.epochs 7"
    assert (found.epochs, found.device, found.command) == (7, "cpu", f"lotnet train {command}"), "the run's own"
    lines = tmp_path / "a" / "metrics.jsonl"
    lines.write_text("".join(lines.read_text().splitlines(keepends=True)[:-1]))
    assert beyond.candidate(item, tmp_path) is None, "its last epoch is missing"


def test_the_table_has_the_difference_to_the_run_without_the_ingredient() -> None:
    text = beyond.page(beyond.Candidates(5, [candidate("base", 0.5), candidate("more", 0.525, "base")]))
    assert "| base | more |  | 50.00 | 50.00 |" in text
    assert "| more | more | base | 52.50 (+2.50) |" in text
    assert "1.5 million" in text and text.count("    lotnet train") == 2


def test_the_figure_is_drawn_from_a_result(tmp_path: Path) -> None:
    result = Path(__file__).parents[1] / "results" / "cifar10-lipconvnet20-lot-emma.json"
    (tmp_path / result.name).write_text(result.read_text())
    beyond_figure.main([result.stem], tmp_path)
    assert (tmp_path / "beyond.png").read_bytes().startswith(b"\x89PNG")
