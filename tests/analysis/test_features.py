"""Activation maximization: its limit on a linear layer, and the command."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lotnet import MaxMin, Normalize, OrthogonalConv2d, OrthogonalLinear
from lotnet.analysis.features import AscentSettings, choose_neurons, count_neurons, hidden_layer, maximize_neurons
from lotnet.cli.main import main
from lotnet.errors import InputError

SHAPE = (1, 4, 4)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    stem = OrthogonalConv2d(1, 4, 3)
    nn.init.normal_(stem.weight)
    layers = (Normalize([0.5], 0.25), stem, MaxMin(), nn.Flatten(), OrthogonalLinear(64, 3))
    return nn.Sequential(*layers).double().eval()


def test_a_linear_neuron_converges_to_its_weight_row_over_the_decay() -> None:
    model = network()
    neurons = [0, 21, 63]
    found = maximize_neurons(model, 1, neurons, SHAPE, AscentSettings(steps=300))
    rows = torch.autograd.functional.jacobian(lambda x: model[1](x).flatten(), torch.zeros(1, *SHAPE).double())
    expected = rows[neurons].squeeze(1) / 0.1
    assert torch.allclose(found.images, expected, atol=1e-9)
    bias = model[1].bias.detach().repeat_interleave(16)[neurons]
    norms = expected.flatten(1).norm(dim=1)
    assert torch.allclose(torch.tensor(found.after).double(), 0.1 * norms + bias / norms, atol=1e-9)
    assert (norms <= 10 * (1 + 1e-9)).all()  # the network is 1-Lipschitz in the coordinates that Normalize makes
    assert all(after > before for before, after in zip(found.before, found.after, strict=True))


def test_neurons_after_an_activation_increase_and_the_seed_sets_the_start() -> None:
    model = network()
    runs = [maximize_neurons(model, 2, [0, 5], SHAPE, AscentSettings(steps=50, seed=seed)) for seed in (0, 0, 1)]
    assert torch.equal(runs[0].images, runs[1].images) and not torch.equal(runs[0].images, runs[2].images)
    # The larger of two is convex: no local maximum traps the ascent.
    assert all(run.after[0] > run.before[0] for run in runs)


def test_layers_and_neurons_must_be_in_range() -> None:
    model = network()
    assert hidden_layer(model, None) == 2 and hidden_layer(model, 1) == 1
    assert count_neurons(model, 2, SHAPE) == 64
    assert choose_neurons(64, [3, 1], 9, seed=0) == [3, 1]
    chosen = choose_neurons(64, None, 9, seed=0)
    assert len(set(chosen)) == 9 and chosen == choose_neurons(64, None, 9, seed=0) != choose_neurons(
        64, None, 9, seed=1
    )
    for layer in (0, 3, 4, 99, -1):
        with pytest.raises(InputError, match=f"there is no hidden layer {layer}: choose one from 1 to 2"):
            hidden_layer(model, layer)
    for neuron in (-1, 64):
        with pytest.raises(InputError, match=f"no neuron {neuron} in a layer of 64: choose from 0 to 63"):
            choose_neurons(64, [neuron], 1, seed=0)
    with pytest.raises(InputError, match="give a count from 1 to 64"):
        choose_neurons(64, None, 65, seed=0)


def test_the_command_draws_runs_side_by_side(
    lot_run: Path, soc_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    arguments = [str(lot_run), str(soc_run), "--neurons", "0", "3", "--steps=5", "--device=cpu", "--out", str(tmp_path)]
    assert main(["analyze", "features", *arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    stored = json.loads((tmp_path / "features.json").read_text())
    assert printed["networks"] == stored["networks"] and stored["steps"] == 5
    assert [network["neurons"] for network in stored["networks"]] == [[0, 3]] * 2
    assert load_file(tmp_path / "features.safetensors")["images.1"].shape == (2, 1, 8, 8)
    assert (tmp_path / "features.png").read_bytes().startswith(b"\x89PNG")


def test_bad_input_gives_a_one_sentence_error(
    lot_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = tmp_path / "started"
    shutil.copytree(lot_run, started, ignore=shutil.ignore_patterns("*.safetensors", "analysis"))
    for arguments, words in (
        (["features", str(started)], "has no finished epoch yet"),
        (["landscape", str(lot_run), str(started)], "has no finished epoch yet"),
        (["features", str(lot_run), "--layer", "40"], "there is no hidden layer 40"),
        (["features", str(lot_run), "--neurons", "1", "4000"], "there is no neuron 4000"),
        (["features", str(lot_run), "--count", "0"], "give a count"),
        (["features", str(lot_run), "--steps", "0"], "steps must be at least 1"),
        (["features", str(lot_run), "--step", "0"], "give a positive one"),
        (["features", str(lot_run), "--step", "20"], "must be from 0 to below 2"),
        (["features", str(lot_run), "--step=1e38", "--decay=0", "--steps=20"], "give a smaller --step"),
        (["landscape", str(lot_run), "--points", "8"], "an odd number"),
        (["landscape", str(lot_run), "--batch_size", "0"], "--batch_size cannot be 0: give 1 or more"),
        (["landscape", str(lot_run), "--split", "all"], "choose test or train"),
        (["landscape"], "see `lotnet analyze "),
        (["features", str(lot_run), "--neuron", "1"], "did you mean --neurons?"),
    ):
        assert main(["analyze", *arguments]) == 2
        sentence = capsys.readouterr().err
        assert words in sentence and sentence.count("\n") == 1
