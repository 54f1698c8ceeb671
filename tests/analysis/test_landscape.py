"""The loss surface: its directions, its grid, and the command."""

import json
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from lotnet import MaxMin, Normalize, OrthogonalConv2d, OrthogonalLinear
from lotnet.analysis.landscape import Landscape, direction, kernels, landscape, mean_loss
from lotnet.analysis.plotting import heading
from lotnet.cli.analysis_tables import by_network
from lotnet.cli.main import main
from lotnet.errors import InputError
from lotnet.layers import NormalizedLinear
from lotnet.losses import CrossEntropy
from lotnet.runs.data import load_data
from lotnet.runs.directory import Run


def network(head: type[nn.Module] = NormalizedLinear) -> nn.Sequential:
    torch.manual_seed(0)
    stem = OrthogonalConv2d(1, 4, 3)
    with torch.no_grad():
        stem.weight[2].zero_()
    return nn.Sequential(Normalize([0.5], 0.25), stem, MaxMin(), nn.Flatten(), head(64, 3)).eval()


def test_directions_are_normalized_filter_by_filter() -> None:
    model = network()
    weights = kernels(model)
    assert [id(w) for w in weights] == [id(model[1].weight), id(model[4].weight)]  # kernels only, no biases
    first, again = (direction(weights, torch.Generator().manual_seed(1)) for _ in range(2))
    for weight, move, same in zip(weights, first, again, strict=True):
        assert torch.allclose(move.flatten(1).norm(dim=1), weight.flatten(1).norm(dim=1), rtol=1e-5)
        assert torch.equal(move, same)
    assert not first[0][2].any()  # the direction of a zero filter is zero
    assert len(kernels(network(OrthogonalLinear))) == 2  # the orthogonal head is a 1 x 1 convolution


def test_the_grid_spans_the_two_directions_and_the_model_is_restored() -> None:
    model = network()
    weight = model[1].weight
    before = {name: value.clone() for name, value in model.state_dict().items()}
    places: list[torch.Tensor] = []

    def value() -> float:
        places.append(weight.detach().clone())
        return float(len(places))

    found = landscape(model, value, points=3, span=0.5, seed=7)
    assert found.steps == (-0.5, 0.0, 0.5) and found.loss == ((1, 2, 3), (4, 5, 6), (7, 8, 9)) and found.center == 5
    generator = torch.Generator().manual_seed(7)
    first, second = (direction(kernels(model), generator)[0] for _ in range(2))
    for n, place in enumerate(places):
        expected = before["1.weight"] + found.steps[n % 3] * first + found.steps[n // 3] * second
        assert torch.allclose(place, expected, atol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_model_is_restored_when_the_loss_fails() -> None:
    model = network()
    before = model[1].weight.detach().clone()
    with pytest.raises(ZeroDivisionError):
        landscape(model, lambda: 1 / 0, points=3, span=1, seed=0)
    assert torch.equal(model[1].weight, before)


def test_only_strict_interior_minima_are_counted() -> None:
    bowl = Landscape((-1.0, 0.0, 1.0), ((2, 1, 2), (1, 0, 1), (2, 1, 2)))
    flat = Landscape((-1.0, 0.0, 1.0), ((1, 1, 1),) * 3)
    slope = Landscape((-1.0, 0.0, 1.0), ((0, 1, 2),) * 3)
    two = Landscape(tuple(range(5)), ((3,) * 5, (3, 0, 3, 3, 3), (3,) * 5, (3, 3, 3, 1, 3), (3,) * 5))
    assert [surface.minima() for surface in (bowl, flat, slope, two)] == [1, 0, 0, 2]


def test_the_loss_equals_the_training_loss() -> None:
    model = network()
    images, labels = torch.rand(7, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    whole = mean_loss(model, CrossEntropy(), images, labels, batch_size=7)
    assert whole == pytest.approx(mean_loss(model, CrossEntropy(), images, labels, batch_size=3), rel=1e-5)
    expected = nn.functional.cross_entropy(model(images), labels)
    assert whole == pytest.approx(float(expected.detach()), rel=1e-4)
    assert not any(layer.training for layer in model.modules())


@pytest.mark.parametrize(
    ("points", "span", "words"), [(4, 1.0, "an odd number"), (1, 1.0, "odd"), (3, 0.0, "positive")]
)
def test_an_invalid_grid_gives_a_one_sentence_error(points: int, span: float, words: str) -> None:
    with pytest.raises(InputError, match=words):
        landscape(network(), lambda: 0.0, points, span, seed=0)


def test_the_command_draws_runs_side_by_side(
    lot_run: Path, soc_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["analyze", "landscape", str(lot_run), str(soc_run), "--points=3", "--limit=20", "--device=cpu"]
    assert main([*arguments, "--out", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    stored = json.loads((tmp_path / "landscape.json").read_text())
    assert printed["surfaces"] == stored["surfaces"] and stored["format"] == 1
    assert [surface["name"] for surface in stored["surfaces"]] == ["LOT", "SOC, last-layer normalisation"]
    assert (tmp_path / "landscape.png").read_bytes().startswith(b"\x89PNG")
    run = Run.open(lot_run)
    split = load_data(run.config).train
    assert len(split) == 100
    for surface in stored["surfaces"]:
        values = torch.tensor(surface["loss"])
        assert values.shape == (3, 3) and values.isfinite().all() and values.std() > 0
    assert main(["analyze", "landscape", str(lot_run), str(lot_run)]) == 2
    assert "is named twice" in capsys.readouterr().err
    assert main([*arguments[:3], *arguments[4:]]) == 0  # a run by itself has the same surface, and stores it
    alone = json.loads((lot_run / "analysis" / "landscape.json").read_text())
    assert alone["surfaces"][0]["loss"] == stored["surfaces"][0]["loss"]


def test_long_names_wrap_and_keep_every_character(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"runs/{'far/' * 12}{end}: LOT" for end in ("one", "two")]
    assert heading("LOT, residual", 34) == "LOT, residual"
    assert all(len(line) <= 34 for name in names for line in heading(name, 34).split("\n"))
    table = by_network("Loss", "smallest", "largest")
    for name in names:
        table.add_row(name, "0.1", "0.2")
    Console(width=50).print(table)
    shown = "".join(line.split("│")[1].strip() for line in capsys.readouterr().out.splitlines() if "│" in line)
    assert shown.replace(" ", "") == "".join(names).replace(" ", "")


def test_without_matplotlib_the_numbers_are_saved(
    lot_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    arguments = ["landscape", str(lot_run), "--points=3", "--limit=5", "--out", str(tmp_path)]
    assert main(["analyze", *arguments]) == 0
    assert "pip install matplotlib" in capsys.readouterr().out
    assert [file.name for file in tmp_path.iterdir()] == ["landscape.json"]
