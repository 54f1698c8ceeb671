"""A run that was divided into parts and put together again goes on as it would have without."""

import shutil
from pathlib import Path

import pytest

from lotnet import train
from lotnet.runs.checkpoint import read
from lotnet.runs.directory import Run
from run_parts import LIST, join, split

SETTINGS = {
    "model.channels": 4,
    "limit": 100,
    "trainer.batch_size": 16,
    "trainer.epochs": 3,
    "trainer.threads": 1,
}


def test_a_run_goes_on_after_it_was_divided_and_joined(tmp_path: Path) -> None:
    whole = train(out=str(tmp_path / "whole"), quiet=True, **SETTINGS)
    part = Run.create(tmp_path / "part", whole.config)
    shutil.copytree(whole.path, part.path, dirs_exist_ok=True)
    part.checkpoints.steps()[-1].unlink()  # as if it had been stopped after the second epoch
    old = part.path / "checkpoints" / "00000001.safetensors"
    shutil.copy(part.checkpoints.best, old)
    twice = [split(part.path, tmp_path / "parts", first, 4, size=40_000) for first in (0, 4)]
    assert [len(paths) for paths in twice] == [4, len(list((tmp_path / "parts").glob("part-*"))) - 4]
    assert all(path.stat().st_size <= 40_000 for paths in twice for path in paths)

    join(tmp_path / "parts", tmp_path / "again")
    assert not (tmp_path / "again" / "checkpoints" / old.name).exists(), "of the checkpoints only the newest"
    again = train(out=str(tmp_path / "again"), resume=True, quiet=True, **SETTINGS)
    for path in (Path("checkpoints") / whole.checkpoints.steps()[-1].name, Path("checkpoints/best.safetensors")):
        (position, tensors), (expected, theirs) = read(again.path / path), read(whole.path / path)
        assert position.total_steps == expected.total_steps
        assert all((tensors[name] == theirs[name]).all() for name in theirs if name.startswith("weights"))


def test_missing_and_damaged_parts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("a" * 30_000)
    first, second, *_ = split(tmp_path / "run", tmp_path / "parts", size=10_000)
    assert (tmp_path / "parts" / LIST).exists()
    second.write_bytes(second.read_bytes()[:-1] + b"b")
    with pytest.raises(SystemExit, match="part-001 is missing or damaged"):
        join(tmp_path / "parts", tmp_path / "again")
    first.unlink()
    with pytest.raises(SystemExit, match="part-000 is missing or damaged"):
        join(tmp_path / "parts", tmp_path / "again")
    with pytest.raises(SystemExit, match="exists: choose another folder"):
        join(tmp_path / "parts", tmp_path / "run")
