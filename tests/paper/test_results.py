"""Results files, and the table made from them."""

import json
import shlex
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from lotnet.certification.plain import RADII
from lotnet.certification.summary import Summary
from lotnet.cli.main import main
from lotnet.cli.verbs import selftrain
from lotnet.cli.verbs.train import read_arguments
from lotnet.config import RunConfig
from lotnet.losses import CReg, OffsetCrossEntropy
from lotnet.models import LipConvnet, LipResNet18
from lotnet.paper import results, results_page
from lotnet.runs.environment import Hardware
from pages import ROOT

MEASURED = results.load_all(ROOT / "results")


def made_up(name: str, config: RunConfig, clean: float = 0.8) -> results.Result:
    summary = Summary(
        images=10000,
        clean=clean,
        radii=list(RADII),
        certified={"plain": [0.7, 0.6, 0.5], "real": [0.7, 0.6, 0.5], "float": [0.65, 0.5, 0.4]},
        mean_radius={"plain": 0.3, "real": 0.3, "float": 0.3},
        linf_mean_radius=0.01,
        l1_mean_radius=0.3,
        curve={"radius": [0.0], "certified": [clean]},
        classes=[],
        lipschitz_bound=1.0,
        precision="float64",
        not_finite=0,
    )
    return results.Result(
        name=name,
        command="lotnet train --config cifar10/creg-hh",
        config=config.to_dict(),
        sessions=[results.ResultSession("", None, {}, Hardware("abacus", processes=1, processor="", cores=None))],
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


def test_a_made_up_result_appears_beside_its_row_of_the_paper(tmp_path: Path) -> None:
    config = cifar10(model={"kind": "lipconvnet", "activation": "hh1", "depth": 20}, loss={"kind": "creg"})
    results.save(made_up("mine", config), tmp_path)
    (tmp_path / "speed.json").write_text(json.dumps({"about": {}}))  # another kind of file
    found = results.load_all(tmp_path)
    assert [result.name for result in found] == ["mine"]
    row = results.paper_row(found[0])
    assert row is not None and (row.model, row.conv, row.clean) == ("LipConvnet-20", "LOT", 77.12)
    text = results_page.markdown(found)
    assert "| LipConvnet-20, LOT, CReg loss | CIFAR-10 | 80.00 | 65.00 | 50.00 | 40.00 | 200 |" in text
    assert "| `mine` |" in text
    assert "| 77.12 / **80.00** / +2.88 | 64.30 / **65.00** / +0.70 | 49.49 / **50.00** / +0.51 |" in text
    assert results.title(found[0]) == "LipConvnet-20, LOT, CReg loss, 200 epochs"


@pytest.mark.parametrize(
    "config",
    (
        RunConfig(),
        cifar10(model={"kind": "lipconvnet", "channels": 64}),
        cifar10(model={"kind": "lipconvnet", "dense_layers": 1}),
        cifar10(model={"kind": "lipconvnet", "start": "quasi-residual"}),
        RunConfig.from_dict({"data": {"name": "cifar10", "distort": True}}, "test"),
        cifar10(model={"kind": "lipconvnet", "activation": "hh1"}, loss={"kind": "offset"}),
        cifar10(model={"kind": "lipconvnet"}, loss={"kind": "creg"}),
        cifar10(model={"kind": "lipconvnet", "activation": "hh1"}, loss={"kind": "creg", "gamma": 0.3}),
        cifar10(limit=500),
        cifar10(init="lipconvnet5-cifar10"),
        *(
            cifar10(model={"kind": "lipconvnet", "depth": 20, name: value})
            for name, value in (
                ("mix", 0.3),
                ("trainable_mix", True),
                ("options", {"tolerance": 1e-3}),
                ("full_depth", True),
                ("start", "random"),
            )
        ),
        cifar10(model={"kind": "lipresnet18", "start": "random"}),
    ),
)
def test_settings_that_the_paper_has_not_tried_have_no_row(config: RunConfig) -> None:
    result = made_up("other", config)
    assert results.paper_row(result) is None
    assert results.measured([result]) == {}
    assert isinstance(config.loss, CReg | OffsetCrossEntropy) or isinstance(config.model, LipConvnet | LipResNet18)
    assert "| `other` |" in results_page.markdown([result]), "it is still among all runs"


def test_record_keeps_a_certified_run(tmp_path: Path, capsys) -> None:
    run, folder = tmp_path / "run", tmp_path / "results"
    settings = ["--model.channels=4", "--limit=200", "--trainer.epochs=2", "--trainer.batch_size=32"]
    assert main(["train", *settings, "--out", str(run)]) == 0
    assert main(["record", str(run), "--to", str(folder)]) == 2
    assert "lotnet certify" in capsys.readouterr().err
    assert main(["certify", str(run)]) == 0
    assert main(["record", str(run), "--to", str(folder), "--name", "tiny"]) == 0
    (result,) = results.load_all(folder)
    assert result.epochs == 2 and result.best_epoch in (1, 2)
    assert result.summary.images == 359
    assert "tiny" in (folder / "README.md").read_text()
    best = run / "checkpoints" / "best.safetensors"
    best.write_bytes(best.read_bytes() + b" ")
    assert main(["record", str(run), "--to", str(folder)]) == 2
    assert "was trained further after it was certified" in capsys.readouterr().err
    best.unlink()  # without weights, the run's own files are trusted
    assert main(["record", str(run), "--to", str(folder)]) == 0


def test_paper_shows_a_result_in_its_cell(tmp_path: Path, capsys) -> None:
    config = cifar10(model={"kind": "lipconvnet", "activation": "hh1", "depth": 20}, loss={"kind": "creg"})
    results.save(made_up("mine", config), tmp_path)
    assert main(["paper", "sup-crhh", "--results", str(tmp_path), "--json"]) == 0
    shown = {(r["dataset"], r["model"], r["conv"]): r["measured"] for r in json.loads(capsys.readouterr().out)}
    ours = {"clean": 80, "cert_36": 65, "cert_72": 50, "cert_108": 40, "epochs": 200}
    assert shown.pop(("cifar10", "LipConvnet-20", "LOT")) == ours
    assert set(shown.values()) == {None}
    assert main(["paper", "sup-crhh", "--results", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "here" in printed and "+2.88" in printed


def test_a_row_shows_the_longest_run_and_of_equally_long_runs_the_newest(tmp_path: Path) -> None:
    config = cifar10(model={"kind": "lipconvnet", "depth": 20})
    names = ("short, good", "old", "new")
    short, old, new = (made_up(name, config, clean=0.9 if name == names[0] else 0.7) for name in names)
    short = replace(short, epochs=60)
    new = replace(new, sessions=[replace(new.sessions[0], started="2026-02-01")])
    old = replace(old, sessions=[replace(old.sessions[0], started="2026-01-01")])
    for order in permutations((short, old, new)):
        found = results.measured(list(order))
        # The row itself, and the rows of ablations that repeat it.
        assert [row.table for row in found] == ["abl-residual", "abl-padding", "sup"]
        assert {result.name for result in found.values()} == {"new"}
    assert results.measured([replace(new, command="lotnet selftrain --config cifar10/plain")]) == {}
    assert "not run yet: 106" in results_page.markdown([])
    text = results_page.markdown([new])
    assert "(`lotnet paper sup`):\n\n* CIFAR-10, SOC: 5, 10, 15, 20" in text
    assert "\n* CIFAR-10, LOT: 5, 10, 15, 25" in text


def test_the_residual_network_has_its_row() -> None:
    row = results.paper_row(made_up("resnet", cifar10(model={"kind": "lipresnet18"})))
    assert row is not None and (row.table, row.conv, row.clean) == ("sup-resnet18", "LOT", 68.85)


def test_the_wide_network_has_a_title_and_no_row() -> None:
    result = made_up("wide", RunConfig.from_recipe("cifar10/wide", {"loss.kind": "emma-annealing"}))
    assert results.paper_row(result) is None
    title = "wide network, 12 x 128 channels, LOT, EMMA loss with logit annealing, last-layer normalisation, 200 epochs"
    assert results.title(result) == title


@pytest.mark.parametrize("result", MEASURED, ids=lambda result: result.name)
def test_the_command_of_a_measured_result_still_gives_its_settings(result: results.Result) -> None:
    """A changed recipe must not change the settings that a row claims."""
    program, command, *options = shlex.split(result.command)
    known = RunConfig.from_dict(result.config, result.name)
    assert program == "lotnet"
    if result.selftraining is None:
        assert command == "train"
        _, config, _ = read_arguments(options)
        assert config == known
        return
    assert command == "selftrain"
    _, plan, _ = selftrain.read_arguments(options)
    assert plan.stage("student", result.selftraining.seed) == known
    assert plan.selftraining == result.selftraining.settings
    if plan.selftraining.teacher is not None:  # a run that has its own row here
        assert result.selftraining.teacher.checksum in {other.checksum for other in MEASURED}


def test_the_page_of_measured_results_is_the_one_that_record_writes() -> None:
    folder = ROOT / "results"
    assert (folder / "README.md").read_text() == results_page.markdown(
        MEASURED, (folder / "findings.md").read_text(), results_page.figures_in(folder)
    )
