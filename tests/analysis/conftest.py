"""Two tiny runs, LOT and SOC, for all analyses."""

from pathlib import Path

import pytest

from lotnet.cli.main import main

TINY = ["--model.channels=4", "--limit=100", "--trainer.epochs=1", "--trainer.batch_size=32"]


@pytest.fixture(scope="session")
def lot_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lot") / "lot"
    assert main(["train", *TINY, "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def soc_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("soc") / "soc"
    assert main(["train", *TINY, "--model.parametrization=soc", "--model.head=lln", "--out", str(path)]) == 0
    return path
