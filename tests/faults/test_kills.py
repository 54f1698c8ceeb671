"""A sample of `make faults`: the first operations of a run, where nothing but a folder exists yet, and a later one."""

from pathlib import Path

import pytest
from faulty import operations
from kills import kill_and_continue


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    folder = tmp_path_factory.mktemp("runs") / "reference"
    return folder, operations(folder)


@pytest.mark.parametrize("at", [2, 3, 5])
def test_killed_at_its_first_writes(reference: tuple[Path, int], tmp_path: Path, at: int) -> None:
    kill_and_continue(reference[0], tmp_path / "run", at)


def test_killed_in_the_middle(reference: tuple[Path, int], tmp_path: Path) -> None:
    folder, moments = reference
    kill_and_continue(folder, tmp_path / "run", moments // 2 | 1)
