"""Results files, and the table they make."""

import json
from pathlib import Path

import pytest

from lotnet import results
from lotnet.cli import main
from lotnet.config import RunConfig
from lotnet.losses import CReg, OffsetCrossEntropy
from lotnet.models import LipConvnet


def made_up(name: str, config: RunConfig, clean: float = 0.8) -> results.Result:
    summary = {
        "clean": clean,
        "certified": {"plain": [0.7, 0.6, 0.5], "real": [0.7, 0.6, 0.5], "float": [0.65, 0.5, 0.4]},
    }
    return results.Result(
        name=name,
        command="lotnet train --config cifar10/creg-hh",
        config=config.to_dict(),
        sessions=[{"started": "", "commit": None, "versions": {}, "hardware": {"device": "abacus"}}],
        parameters=1,
        epochs=200,
        best_epoch=7,
        train_seconds=1.0,
        evaluation_seconds=1.0,
        evaluation_device="cpu",
        checksum="",
        summary=summary,
        audit=[],
    )


def cifar10(**settings: object) -> RunConfig:
    return RunConfig.from_dict({"data": {"name": "cifar10"}, **settings}, "test")


def test_a_made_up_result_stands_beside_its_row_of_the_paper(tmp_path: Path) -> None:
    config = cifar10(model={"kind": "lipconvnet", "activation": "hh1", "depth": 20}, loss={"kind": "creg"})
    results.save(made_up("mine", config), tmp_path)
    (tmp_path / "speed.json").write_text(json.dumps({"about": {}}))  # another kind of file
    found = results.load_all(tmp_path)
    assert [result.name for result in found] == ["mine"]
    row = results.paper_row(found[0])
    assert row is not None and (row.model, row.conv, row.clean) == ("LipConvnet-20", "LOT", 77.12)
    text = results.markdown(found)
    assert "| **mine** | 80.00 | 65.00 | 50.00 | 40.00 |" in text
    assert "| difference | +2.88 | +0.70 | +0.51 | +3.66 |" in text


@pytest.mark.parametrize(
    "config",
    (
        RunConfig(),
        cifar10(model={"kind": "lipconvnet", "channels": 64}),
        cifar10(model={"kind": "lipconvnet", "activation": "hh1"}, loss={"kind": "offset"}),
        cifar10(model={"kind": "lipconvnet"}, loss={"kind": "creg"}),
    ),
)
def test_what_the_paper_has_not_tried_has_no_row(config: RunConfig) -> None:
    assert results.paper_row(made_up("other", config)) is None
    assert isinstance(config.loss, CReg | OffsetCrossEntropy) or isinstance(config.model, LipConvnet)


def test_record_keeps_a_certified_run(tmp_path: Path, capsys) -> None:
    run, folder = tmp_path / "run", tmp_path / "results"
    settings = ["--model.channels=4", "--limit=200", "--trainer.epochs=2", "--trainer.batch_size=32"]
    assert main(["train", *settings, "--out", str(run)]) == 0
    assert main(["record", str(run), "--to", str(folder)]) == 2
    assert "lotnet certify" in capsys.readouterr().err
    assert main(["certify", str(run), "--limit=30"]) == 0
    assert main(["record", str(run), "--to", str(folder), "--name", "tiny"]) == 0
    (result,) = results.load_all(folder)
    assert result.epochs == 2 and result.best_epoch in (1, 2)
    assert result.summary["images"] == 30
    assert "tiny" in (folder / "README.md").read_text()


def test_paper_shows_a_result_in_its_cell(tmp_path: Path, capsys) -> None:
    config = cifar10(model={"kind": "lipconvnet", "activation": "hh1", "depth": 20}, loss={"kind": "creg"})
    results.save(made_up("mine", config), tmp_path)
    assert main(["paper", "sup-crhh", "--results", str(tmp_path), "--json"]) == 0
    shown = {(r["dataset"], r["model"], r["conv"]): r["measured"] for r in json.loads(capsys.readouterr().out)}
    assert shown.pop(("cifar10", "LipConvnet-20", "LOT")) == {"clean": 80, "cert_36": 65, "cert_72": 50, "cert_108": 40}
    assert set(shown.values()) == {None}
    assert main(["paper", "sup-crhh", "--results", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "here" in printed and "+2.88" in printed


def test_the_best_epoch_is_the_one_that_training_kept() -> None:
    """By the radius that the run was told, and the first of equals."""
    scores = {1: (0.9, 0.2), 2: (0.8, 0.5), 3: (0.7, 0.5)}
    metrics = [{"epoch": n, "certified": {"36/255": a, "72/255": b}} for n, (a, b) in scores.items()]
    assert results.best_epoch(metrics, 36 / 255) == 1
    assert results.best_epoch(metrics, 72 / 255) == 2
