"""Atomic writes: old or new content, the user's umask and mode, a flushed folder, and no leftovers."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lotnet.config import RunConfig
from lotnet.errors import InputError
from lotnet.files import atomic_write, remove_partial_files
from lotnet.runs.directory import Run


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_of_the_umask_and_an_old_one_keeps_its_own(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        atomic_write(tmp_path / "a", b"1")
        assert mode(tmp_path / "a") == 0o666 & ~umask
        (tmp_path / "a").chmod(0o640)
        atomic_write(tmp_path / "a", b"2")
        assert mode(tmp_path / "a") == 0o640 and (tmp_path / "a").read_bytes() == b"2"
    finally:
        os.umask(before)


def test_content_is_flushed_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    flush, rename = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda handle: (events.append(stat.S_ISDIR(os.fstat(handle).st_mode)), flush(handle))
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("rename"), rename(a, b)))
    atomic_write(tmp_path / "a", b"1")
    assert events == [False, "rename", True]


def test_a_name_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    atomic_write(tmp_path / ("a" * 255), b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["a" * 255]
    with pytest.raises(InputError, match=r"cannot write .*too long"):
        atomic_write(tmp_path / ("a" * 256), b"1")


def test_leftovers_of_killed_writers_are_swept_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    program = "import sys, pathlib, lotnet.files as f\nwith f.replacing(pathlib.Path(sys.argv[1])): print(); input()"
    command = [sys.executable, "-c", program, str(tmp_path / "a")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        atomic_write(tmp_path / "a", b"mine")
        remove_partial_files(tmp_path)
        assert len(list(tmp_path.glob(".a.*.partial"))) == 1  # it lives
        writer.kill()
    atomic_write(tmp_path / "a", b"mine")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_a_kill_before_the_first_write_leaves_is_no_obstacle(tmp_path: Path, overwrite: bool) -> None:
    """Neither is what earlier versions left, which made `checkpoints` first."""
    path = tmp_path / "run"
    (path / "checkpoints").mkdir(parents=True)
    (path / ".config.yaml.12ab.partial").write_bytes(b"half")
    Run.create(path, RunConfig(), overwrite)
    assert sorted(file.name for file in path.iterdir()) == ["checkpoints", "config.yaml"]


def test_a_run_that_is_being_overwritten_stays_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Run.create(tmp_path / "run", RunConfig())
    (tmp_path / "run" / "notes.txt").write_text("mine")
    monkeypatch.setattr("lotnet.runs.directory.atomic_write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        Run.create(tmp_path / "run", RunConfig(), overwrite=True)
    monkeypatch.undo()
    Run.open(tmp_path / "run")
    Run.create(tmp_path / "run", RunConfig(), overwrite=True)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
