"""`lotnet analyze`."""

import json
import shutil
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from lotnet.analysis.newton import (
    CAPTION,
    PAPER_STEPS,
    Convergence,
    LayerConvergence,
    layer_convergence,
    lot_layers,
    observed,
)
from lotnet.cli.main import main
from lotnet.errors import InputError
from lotnet.layers.conv import OrthogonalConv2d
from lotnet.layers.linear import OrthogonalLinear
from lotnet.runs.directory import Run

ROUNDING = 1e-12


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("analysis") / "run"
    settings = ["--model.channels=4", "--limit=100", "--trainer.epochs=1", "--trainer.batch_size=32"]
    assert main(["train", *settings, "--out", str(path)]) == 0
    return path


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = (
        OrthogonalConv2d(3, 5, 3),
        OrthogonalConv2d(5, 4, 3, stride=2, padding_mode="circular"),
        OrthogonalConv2d(4, 4, 3, parametrization="cayley"),
        OrthogonalConv2d(4, 4, 1),
        nn.Flatten(),
        OrthogonalLinear(36, 7),
    )
    return nn.Sequential(*layers).eval()


def test_every_lot_layer_is_found_at_its_image_size() -> None:
    model = network()
    found = lot_layers(model, (3, 6, 6))
    sizes = {name: (geometry.height, geometry.width) for name, (_, geometry) in found.items()}
    assert sizes == {"0": (6, 6), "1": (3, 3), "3": (3, 3), "5.pixel": (1, 1)}


def test_newton_rises_to_one_below_its_bound_and_our_iteration_converges() -> None:
    model = network()
    for layer in (model[0], model[1], model[3]):  # random kernels, not near the identity
        with torch.no_grad():
            layer.weight.normal_()
    for name, (layer, geometry) in lot_layers(model, (3, 6, 6)).items():
        row = layer_convergence(name, layer, geometry)
        paper = row.paper.largest
        assert len(paper) == len(row.bound) == PAPER_STEPS + 1
        assert all(later >= earlier - ROUNDING for earlier, later in pairwise(paper))
        assert max(paper) <= 1 + ROUNDING and paper[8] > 0.9999
        assert all(
            bound is not None and value <= bound + ROUNDING for value, bound in zip(paper, row.bound, strict=True)
        )
        assert all(s >= 0 for s in row.paper.smallest)
        assert max(row.ours.largest) < 2 and 1 - 1e-5 <= row.ours.largest[-1] <= 1 + ROUNDING
        assert row.condition is not None
        if row.condition <= 1e3:
            assert row.ours.smallest[-1] >= 1 - 1e-5


def test_training_uses_the_last_step() -> None:
    layer = OrthogonalConv2d(4, 6, 1).double()  # more rows than columns: LOT works on the short side
    (name, (found, geometry)), *_ = lot_layers(nn.Sequential(layer), (4, 5, 5)).items()
    row = layer_convergence(name, found, geometry)
    used = torch.linalg.svdvals(layer.train().operator(5, 5).kernel[:, :, 0, 0].detach())  # type: ignore[attr-defined]
    assert row.shape == (4, 6)
    assert row.ours.largest[-1] == pytest.approx(float(used[0]), abs=1e-14)
    assert row.ours.smallest[-1] == pytest.approx(float(used[-1]), abs=1e-14)


def test_a_singular_layer_has_no_bound_and_a_zero_one_is_refused() -> None:
    layer = OrthogonalConv2d(2, 2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]])[:, :, None, None])
    row = layer_convergence("0", layer, layer.geometry(4, 4))
    assert row.condition is None and set(row.bound) == {None}
    assert row.paper.largest[-1] == pytest.approx(1) and row.ours.smallest[-1] == 0
    with torch.no_grad():
        layer.weight.zero_()
    with pytest.raises(InputError, match="layer 0 has a matrix that is zero"):
        layer_convergence("0", layer, layer.geometry(4, 4))


def test_the_papers_observation_is_reported_as_measured() -> None:
    steps = Convergence((0.5,) * 8 + (0.99991, 1.0, 1.0), (0.1,) * 11)
    layer = LayerConvergence("0", (2, 2), 1, 3.0, steps, (1.5,) * 11, steps)
    assert observed([layer]) == (
        "The paper's largest value is at least 0.999910 in every layer after 8 steps, and at no step above its bound."
    )
    rounded = replace(layer, bound=(1.5,) * 10 + (1 - 2.0**-53,))
    assert "above its bound by at most 1e-16, which is rounding" in observed([layer, rounded])
    assert observed([layer, replace(layer, bound=(1.5,) * 10 + (0.9,))]).endswith("above its bound by at most 1e-01.")
    assert "no bound" in observed([replace(layer, condition=None, bound=(None,) * 11)])


def test_newton_writes_data_and_picture(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main(["analyze", "newton", str(run), "--json", "--device", "cpu"]) == 0
    printed = json.loads(capsys.readouterr().out)
    stored = json.loads((run / "analysis" / "newton.json").read_text())
    assert printed["layers"] == stored["layers"] and stored["format"] == 1
    assert printed["caption"] == stored["caption"] == CAPTION
    model = Run.open(run).best_model()
    assert [layer["name"] for layer in stored["layers"]] == [
        name for name, layer in model.named_modules() if isinstance(layer, OrthogonalConv2d)
    ]
    assert (run / "analysis" / "newton.png").read_bytes().startswith(b"\x89PNG")
    for layer in stored["layers"]:
        assert layer["paper"]["largest"][8] > 0.9999
        pairs = zip(layer["paper"]["largest"], layer["bound"], strict=True)
        assert all(bound is None or value <= bound + ROUNDING for value, bound in pairs)


def test_newton_without_matplotlib_says_so(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "analysis" / "newton.png").unlink(missing_ok=True)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["analyze", "newton", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "pip install matplotlib" in shown and "5.pixel" in shown
    assert not (run / "analysis" / "newton.png").exists()


def test_bad_input_gives_a_one_sentence_error(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started = tmp_path / "started"
    shutil.copytree(run, started, ignore=shutil.ignore_patterns("*.safetensors", "analysis"))
    for arguments, words in (
        (["newton", str(started)], "has no finished epoch yet: continue it with"),
        (["newton", str(tmp_path / "nowhere")], "holds no run"),
        (["newtn", str(run)], "did you mean newton?"),
        (["newton"], "see `lotnet analyze "),
    ):
        assert main(["analyze", *arguments]) == 2
        sentence = capsys.readouterr().err
        assert words in sentence and sentence.count("\n") == 1


def test_a_run_without_lot_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("lotnet.analysis.newton.lot_layers", lambda *_: {})
    assert main(["analyze", "newton", str(run)]) == 2
    assert "has no LOT layer" in capsys.readouterr().err
