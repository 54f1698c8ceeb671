"""`lotnet attack --table linf`: one row for each model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lotnet.attacks import PGD_LINF, linf_accuracy, pgd_linf
from lotnet.cli.main import main
from lotnet.cli.verbs.train import read_arguments
from lotnet.load_model import load_model, tensors
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
    images, labels = tensors(opened.split("test", 40))
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


def test_a_result_has_the_attack_on_its_model_and_images(runs: list[str], tmp_path: Path) -> None:
    run = runs[0]
    assert main(["certify", run, "--limit=30"]) == 0
    assert main(["attack", run, "--table", "linf", "--limit=30", "--steps=3"]) == 0
    (found,) = [results.collect(Path(run), "tiny").linf]
    assert found is not None and (found["steps"], found["radius"]) == (3, 8 / 255)
    results.save(results.collect(Path(run), "tiny"), tmp_path)
    (stored,) = results.load_all(tmp_path)
    assert stored.percentages()["pgd_linf"] == round(100 * found["attacked"], 2)
    assert main(["attack", run, "--table", "linf", "--limit=20", "--steps=3"]) == 0
    assert results.collect(Path(run), "tiny").linf is None, "20 images are not the 30 that were certified"


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
