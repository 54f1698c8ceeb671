"""One run that nothing disturbs, which others are compared with."""

from pathlib import Path

import pytest
from faulty import operations


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The run's folder, and the number of its operations on the folder."""
    folder = tmp_path_factory.mktemp("runs") / "reference"
    return folder, operations(folder)
