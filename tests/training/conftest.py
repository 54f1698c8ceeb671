"""One uninterrupted run, which other tests compare with."""

from pathlib import Path

import pytest

from runs import TINY, lotnet


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("reference") / "run"
    lotnet("train", *TINY, "--out", str(run))
    return run
