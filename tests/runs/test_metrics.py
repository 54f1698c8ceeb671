"""metrics.jsonl: append, read and truncate records, and choose the best epoch."""

from pathlib import Path

import pytest

from lotnet.errors import InputError
from lotnet.runs.metrics import EpochMetrics, MetricsFile, best_epoch


def made_up(epoch: int, at_36: float = 0.5, at_72: float = 0.3) -> EpochMetrics:
    return EpochMetrics(epoch, 1.5, 0.7, {"36/255": at_36, "72/255": at_72}, 2.0, step=10 * epoch, lr=0.1)


def test_appended_records_are_read_and_can_be_removed(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    assert file.read() == []
    file.truncate(0)  # nothing there yet
    first = file.append(made_up(1))
    second = file.append(made_up(2))
    assert file.read() == [made_up(1), made_up(2)] and file.path.stat().st_size == second
    file.truncate(first)
    assert file.read() == [made_up(1)]


def test_a_damaged_line_gives_a_one_sentence_error(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append(made_up(1))
    for line in ('{"epoch": 1}', '{"format": 1, "epoch": 1}', "[]", "{", '{"format": 1, "epoch": "1"}'):
        file.path.write_text(f"{line}\n")
        with pytest.raises(InputError, match=r"metrics\.jsonl is damaged .*: delete the run and train it again"):
            file.read()
    file.path.write_text('{"format": 8}\n')
    with pytest.raises(InputError, match="has format 8, this lotnet reads 1"):
        file.read()


def test_the_best_epoch_is_chosen_at_the_radius_of_the_run_and_ties_go_to_the_later_epoch() -> None:
    metrics = [made_up(1, 0.9, 0.2), made_up(2, 0.8, 0.5), made_up(3, 0.7, 0.5)]
    assert best_epoch(metrics, 36 / 255) == 1
    assert best_epoch(metrics, 72 / 255) == 3
    with pytest.raises(InputError, match="no epoch has a certified accuracy at 100/255"):
        best_epoch(metrics, 100 / 255)
    with pytest.raises(InputError, match="no epoch"):
        best_epoch([], 36 / 255)
