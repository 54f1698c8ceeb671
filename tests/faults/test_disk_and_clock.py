"""A sample of `make faults`: a disk that fills up, two processes at once, and a clock that goes backwards."""

from pathlib import Path

import pytest
from disk_and_clock import FAULTS, can_mount


@pytest.mark.parametrize(("fault", "number"), [("ENOSPC", 70), ("EROFS", 9), ("two processes", 0), ("full disk", 40)])
def test_a_disturbed_run_says_so_and_can_be_continued(
    undisturbed: tuple[Path, int], tmp_path: Path, fault: str, number: int
) -> None:
    if fault == "full disk" and not can_mount():
        pytest.skip("no file system may be mounted here")
    FAULTS[fault](undisturbed[0], tmp_path / "run", number)
