"""A run directory that an earlier version wrote opens: settings, records, checkpoints, certificates."""

import json
import shutil
from pathlib import Path

import pytest

from lotnet.cli.main import main
from lotnet.load_model import load_model
from lotnet.runs.directory import Run

STORED = Path(__file__).parent.parent / "fixtures" / "run-format1"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shutil.copytree(STORED, tmp_path / "run")


def test_every_file_of_the_run_is_read(run: Path) -> None:
    opened = Run.open(run)
    assert opened.config.model.channels == 2 and opened.config.trainer.epochs == 8
    assert [record.epoch for record in opened.metrics()] == list(range(1, 9))
    environment = opened.environment()
    assert environment.images.mean == (0.3054142156862745,) and environment.sessions[0].hardware.processes == 1
    certification = opened.certification()
    assert certification.checkpoint == opened.best_digest() and len(certification.images) == 40
    assert opened.is_finished()
    _, tensors = opened.checkpoints.latest(opened.config.fingerprint(), pytest.fail)
    assert {name.split(".")[0] for name in tensors} == {"weights", "optimizer", "rng", "progress"}


def test_the_stored_model_is_the_one_its_best_checkpoint_gives(run: Path) -> None:
    stored = load_model(run)
    assert stored.note is None
    shutil.rmtree(run / "model")
    again = load_model(run)
    assert again.note is not None and "in memory" in again.note
    assert again.model.settings.keys() == stored.model.settings.keys()


def test_certifying_it_again_gives_the_same_radii(run: Path, capsys) -> None:
    """All but the last bits, which depend on the processor; test_stored_model.py compares every bit."""
    before = json.loads((run / "certificates.json").read_text())["images"]
    assert main(["certify", str(run), "--limit", "40"]) == 0
    after = json.loads((run / "certificates-test-40.json").read_text())["images"]
    assert [image["prediction"] for image in after] == [image["prediction"] for image in before]
    for old, new in zip(before, after, strict=True):
        assert new["radius_float"] == pytest.approx(old["radius_float"], rel=1e-9, abs=1e-12)


def test_training_continues_from_the_stored_checkpoint(run: Path, capsys) -> None:
    (run / "checkpoints" / "00000040.safetensors").unlink()
    assert not Run.open(run).is_finished()
    assert main(["train", "--resume", str(run)]) == 0
    opened = Run.open(run)
    assert opened.is_finished() and [record.epoch for record in opened.metrics()] == list(range(1, 9))
