"""`lotnet attack --table linf`: one row for each model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lotnet.attacks import PGD_LINF, linf_accuracy, pgd_linf
from lotnet.cli.main import main
from lotnet.cli.verbs.train import read_arguments
from lotnet.data import to_unit
from lotnet.load_model import load_model
from lotnet.paper import results
from lotnet.paper import tables as paper

TINY = ["--model.channels=4", "--limit=100", "--trainer.epochs=2", "--trainer.batch_size=32"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("table")
    paths = [str(folder / name) for name in ("lot", "soc")]
    for path in paths:
        kind = Path(path).name
        assert main(["train", *TINY, f"--model.parametrization={kind}", "--out", path]) == 0
    return paths


def test_a_row_is_the_accuracy_under_attack(runs: list[str]) -> None:
    opened = load_model(runs[0])
    split = opened.split("test", 40)
    images, labels = to_unit(split.images, torch.float64), split.labels
    found = linf_accuracy(opened.model, images, labels, 0.05, replace(PGD_LINF, steps=5), batch_size=16, seed=3)
    graph = opened.model.astype(torch.float64)
    right = graph(images).argmax(dim=1) == labels
    assert found.images == 40 and found.clean == float(right.double().mean())
    assert found.attacked <= found.clean
    generator, left = torch.Generator().manual_seed(3), 0
    for x, y in zip(images[right].split(16), labels[right].split(16), strict=True):
        points = pgd_linf(graph, x, y, 0.05, replace(PGD_LINF, steps=5), generator=generator)
        left += int((graph(points).argmax(dim=1) == y).sum())
    assert found.attacked == left / 40
    assert linf_accuracy(opened.model, images, labels, 0.0, replace(PGD_LINF, steps=2)).attacked == found.clean
    assert linf_accuracy(opened.model, images, labels, 1.0, replace(PGD_LINF, steps=10)).attacked == 0


def test_the_table_has_a_row_for_each_model(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["attack", *runs, "--table", "linf", "--limit=30", "--steps=3", "--device=cpu"]
    assert main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["linf"] == 8 / 255 and [row["model"] for row in printed["rows"]] == runs
    for row in printed["rows"]:
        assert 0 <= row["attacked"] <= row["clean"] <= 1 and row["images"] == 30 and row["paper"] is None
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "attacked" in shown and "8/255" in shown
    assert not (Path(runs[0]) / "attacks.json").exists()  # that is the full report's


def test_the_loss_and_the_step_decide_the_attack(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With more than one step, raising the cross-entropy takes another way than lowering the margin."""
    opened = load_model(runs[0])
    split = opened.split("test", 20)
    images, labels = to_unit(split.images, torch.float64), split.labels
    graph = opened.model.astype(torch.float64)
    settings = replace(PGD_LINF, steps=3)
    points = [
        pgd_linf(graph, images, labels, 0.02, replace(settings, loss=loss), generator=torch.Generator().manual_seed(0))
        for loss in ("margin", "cross-entropy")
    ]
    assert not torch.equal(*points)
    assert all((p - images).abs().max() <= 0.02 + 1e-15 and p.min() >= 0 and p.max() <= 1 for p in points)
    arguments = ["attack", runs[0], "--limit=10", "--steps=1", "--device=cpu", "--loss=cross-entropy", "--step_size=1"]
    assert main(arguments) == 2
    assert "add --table linf" in capsys.readouterr().err
    assert main([*arguments, "--table=linf"]) == 0
    assert "PGD on the cross-entropy within 8/255: 1 step of 1 of the radius" in " ".join(
        capsys.readouterr().out.split()
    )
    kept = json.loads((Path(runs[0]) / "linf.json").read_text())
    assert (kept["loss"], kept["step_size"], kept["steps"]) == ("cross-entropy", 1.0, 1)
    assert main([*arguments, "--table=linf", "--step_size=0"]) == 2
    assert "more than 0" in capsys.readouterr().err


def test_a_result_has_the_attack_on_its_model_and_images(runs: list[str], tmp_path: Path) -> None:
    run = runs[0]
    assert main(["certify", run, "--limit=30"]) == 0
    assert main(["attack", run, "--table", "linf", "--limit=30"]) == 0
    (found,) = [results.collect(Path(run), "tiny").linf]
    assert found is not None and (found.steps, found.radius, found.loss) == (50, 8 / 255, "margin")
    results.save(results.collect(Path(run), "tiny"), tmp_path)
    (stored,) = results.load_all(tmp_path)
    assert stored.percentages()["pgd_linf"] == round(100 * found.attacked, 2)
    for other in ("--limit=20", "--steps=3", "--step_size=1"):  # not the certified images, or not the paper's attack
        assert main(["attack", run, "--table", "linf", "--limit=30", "--steps=50", other]) == 0
        assert results.collect(Path(run), "tiny").linf is None, other


def test_several_models_need_a_table(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attack", *runs]) == 2
    assert "compare them with --table linf" in capsys.readouterr().err
    assert main(["attack", *runs, "--table=l2"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("row", paper.rows_of("pgd-linf-8-255"), ids=lambda row: f"{row.model} {row.conv}")
def test_the_papers_row_is_found_by_settings(row: paper.Row) -> None:
    recipe, overrides = paper.recipe_for(row)
    config = read_arguments(["--config", recipe, *paper.arguments(overrides)])[1]
    assert results.row_like(config, "pgd-linf") == row
