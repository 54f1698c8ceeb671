"""Disks that are full or read-only, two processes at once, and a clock that goes backwards.

    python tests/faults/disk_and_clock.py

Each case disturbs a training run, which ends with exit code 2 and a sentence, or as if nothing had been. Then the cause
is removed and the run continued: the weights are bit for bit those of a run that was never disturbed. Exit code 1 if
not. Real file systems of a few kilobytes are mounted where that is allowed; elsewhere, these cases are left out.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from faulty import SHORT, operations, run, start

from runs import assert_same
from workers import spread, versions, with_workers

Case = tuple[str, int]
"""The name of a fault and a number: of the first operation that fails, or a size in kilobytes."""

ERRORS = ("ENOSPC", "EROFS", "EIO", "EDQUOT")


def refused(done: subprocess.CompletedProcess[str]) -> None:
    """It ended with a sentence and exit code 2, or it did not need what was refused."""
    assert done.returncode in (0, 2), f"exit {done.returncode}: {done.stderr[-600:]}"
    assert "Traceback" not in done.stderr, done.stderr[-1500:]
    sentences = [line for line in done.stderr.splitlines() if line.startswith("lotnet")]
    assert done.returncode == 0 or len(sentences) == 1, f"not one sentence: {done.stderr[-600:]}"


def go_on(reference: Path, folder: Path) -> None:
    """Continue a run without a fault, and compare it with the reference."""
    begun = (folder / "config.yaml").exists()
    arguments = ("--resume", str(folder)) if begun else (*SHORT, "--out", str(folder))
    done = run(folder, "train", *arguments)
    assert done.returncode == 0 and "Traceback" not in done.stderr, f"exit {done.returncode} {done.stderr[-600:]}"
    assert_same(reference, folder)
    left = [path.name for path in folder.rglob(".*")]
    assert not left, f"left {left}"


def system_error(reference: Path, folder: Path, at: int, name: str) -> None:
    """From an operation on, the system refuses all of them. (A full disk still lets files be removed.)"""
    refused(run(folder, "train", *SHORT, "--out", str(folder), at=at, fault=name))
    go_on(reference, folder)


def full_disk(reference: Path, folder: Path, kilobytes: int) -> None:
    """A real file system that is too small, and is made larger."""
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder))
    try:
        refused(run(folder / "run", "train", *SHORT, "--out", str(folder / "run")))
        _mount("-o", "remount,size=20m", str(folder))
        go_on(reference, folder / "run")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def read_only_disk(reference: Path, folder: Path, at: int) -> None:
    """A run that was killed lies on a real file system that is then read-only, and becomes writable again."""
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", "size=20m", "tmpfs", str(folder))
    try:
        run(folder / "run", "train", *SHORT, "--out", str(folder / "run"), at=at)
        _mount("-o", "remount,ro", str(folder))
        done = run(folder / "run", "train", "--resume", str(folder / "run"))
        refused(done)
        assert done.returncode == 2, "training went on without a disk"
        _mount("-o", "remount,rw", str(folder))
        go_on(reference, folder / "run")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def two_processes(reference: Path, folder: Path, at: int) -> None:
    """The same command twice at once, on a new run (0) or on one that was killed: one of the two is refused."""
    arguments = ["train", *SHORT, "--out", str(folder)]
    if at:
        run(folder, *arguments, at=at)
        arguments = ["train", "--resume", str(folder)]
    both = [start(folder, *arguments) for _ in range(2)]
    ended = [process.finish() for process in both]
    for done in ended:
        refused(done)
    assert 0 in [done.returncode for done in ended], "neither ended well"
    go_on(reference, folder)


def clock_backwards(reference: Path, folder: Path, at: int) -> None:
    """A run is killed; the clock is set back, so its files come from the future; and it goes on being set back."""
    run(folder, "train", *SHORT, "--out", str(folder), at=at)
    future = time.time() + 400 * 86400
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (future, future))
    done = run(folder, "train", "--resume", str(folder), fault="clock")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-600:]
    go_on(reference, folder)


FAULTS: dict[str, Callable[[Path, Path, int], None]] = {
    **{name: partial(system_error, name=name) for name in ERRORS},
    "full disk": full_disk,
    "read-only disk": read_only_disk,
    "two processes": two_processes,
    "clock backwards": clock_backwards,
}


def cases(moments: int) -> list[Case]:
    """Cases for a run with so many operations."""
    made = [(name, at) for n, name in enumerate(ERRORS) for at in range(1 + n, moments, 13)]
    made += [(name, at) for name in ("two processes", "clock backwards") for at in (moments // 3, 2 * moments // 3)]
    made += [("two processes", 0), ("two processes", 0)]
    if can_mount():
        made += [("full disk", size) for size in (4, 16, 24, 32, 40, 56, 72, 88, 100)]
        made += [("read-only disk", at) for at in (moments // 4, moments // 2, moments - 8)]
    return made


def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as name:
        try:
            _mount("-t", "tmpfs", "tmpfs", name)
        except (OSError, subprocess.CalledProcessError):
            return False
        subprocess.run(["umount", name], check=True)
    return True


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def one(case: Case, folder: Path) -> str:
    """Try one case beside the run `reference`. Returns what was wrong, if anything."""
    fault, number = case
    with tempfile.TemporaryDirectory(dir=folder) as name:
        try:
            FAULTS[fault](folder / "reference", Path(name) / "run", number)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            return f"{fault}, {number}: {type(error).__name__}: {error}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    settings = with_workers(parser).parse_args()
    start, ends = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as name:
        chosen = cases(operations(Path(name) / "reference"))
        for end in spread(partial(one, folder=Path(name)), chosen, settings.workers):
            ends.append(end)
            print(f"{len(ends)} of {len(chosen)} faults", end="\r", file=sys.stderr, flush=True)
    print(f"{versions()}; {settings.workers} processes of one thread")
    for fault in FAULTS:
        mine = [end for (name, _), end in zip(chosen, ends, strict=True) if name == fault]
        print(f"{fault:<16} {len(mine):>3} cases, {sum(map(bool, mine))} failed")
    print(f"{time.perf_counter() - start:.0f} s", *filter(None, ends), sep="\n")
    return int(any(ends))


if __name__ == "__main__":
    sys.exit(main())
