"""A sample of `make faults`: kills at the first operations of a run, when nothing but a folder exists, and later."""

from pathlib import Path

import pytest
from kills import kill_and_continue


@pytest.mark.parametrize("at", [2, 3, 5])
def test_killed_at_its_first_writes(undisturbed: tuple[Path, int], tmp_path: Path, at: int) -> None:
    kill_and_continue(undisturbed[0], tmp_path / "run", at)


def test_killed_in_the_middle(undisturbed: tuple[Path, int], tmp_path: Path) -> None:
    folder, moments = undisturbed
    kill_and_continue(folder, tmp_path / "run", moments // 2 | 1)
