"""Which model a run has: the stored one if it is of the best checkpoint, else that checkpoint, frozen in memory."""

import shutil
from pathlib import Path

import pytest

import lotnet
from lotnet.cli.main import main
from lotnet.errors import InputError
from lotnet.load_model import load_model


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frozen") / "run"
    small = {"model.channels": 4, "limit": 100, "trainer.batch_size": 32, "trainer.epochs": 1}
    lotnet.train("digits/default", path, quiet=True, **small)
    assert main(["certify", str(path), "--limit", "5"]) == 0
    return path


@pytest.fixture
def run(certified: Path, tmp_path: Path) -> Path:
    return shutil.copytree(certified, tmp_path / "run")


def test_the_stored_model_is_loaded(run: Path) -> None:
    assert load_model(run).note is None


def test_a_run_copied_without_its_checkpoints_has_its_stored_model(certified: Path, run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    assert lotnet.load(run).checksum() == lotnet.load(certified).checksum()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda run: shutil.rmtree(run / "model"), "holds no frozen model"),
        (lambda run: (run / "model" / "model.safetensors").write_bytes(b"not a model"), "model"),
        (lambda run: (run / "certificates.json").write_text('{"format": 99}'), "format 99"),
    ],
    ids=["missing", "damaged", "unknown format"],
)
def test_what_cannot_be_used_is_named_and_replaced_in_memory(certified: Path, run: Path, damage, reason: str) -> None:
    damage(run)
    loaded = load_model(run)
    assert loaded.note is not None and "in memory" in loaded.note and reason in loaded.note
    assert loaded.model.checksum() == lotnet.load(certified).checksum()
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(InputError, match=reason):
        load_model(run)
