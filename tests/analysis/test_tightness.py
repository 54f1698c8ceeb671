"""Which layers make the Lipschitz bound loose: the gradient norm of a margin, stage by stage."""

import json
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from lotnet.analysis.plotting import png
from lotnet.analysis.tightness import Subject, Tightness, analyze, draw, tightness
from lotnet.cli.main import main
from lotnet.data import Split
from lotnet.errors import printable
from lotnet.layers import (
    ConvexResidual,
    Householder,
    MaxMin,
    Normalize,
    NormalizedLinear,
    OrthogonalConv2d,
    OrthogonalLinear,
    freeze,
)

IMAGES = torch.rand(40, 2, 4, 4, generator=torch.Generator().manual_seed(0))


def network(*layers: nn.Module, features: int) -> nn.Sequential:
    torch.manual_seed(1)
    normalize = Normalize([0.5, 0.4], 0.25)
    return nn.Sequential(normalize, *layers, nn.Flatten(), NormalizedLinear(features, 3)).eval()


def test_norm_preserving_layers_attain_their_bound() -> None:
    """Circular padding with square or row-orthonormal kernels: the gradient norm equals its Lipschitz bound."""
    layers = OrthogonalConv2d(2, 2, 3, padding_mode="circular"), MaxMin(), OrthogonalConv2d(2, 4, 1, stride=2)
    found = tightness(freeze(network(*layers, Householder(4), features=16), 4), IMAGES)
    assert found.share == pytest.approx(1, abs=1e-5)
    assert all(stage.kept == pytest.approx(1, abs=1e-5) for stage in found.stages)


def test_the_product_of_the_stages_is_the_gradient_over_its_bound() -> None:
    model = freeze(
        network(
            OrthogonalConv2d(2, 6, 3),
            MaxMin(),
            ConvexResidual(nn.Sequential(OrthogonalConv2d(6, 6, 3), MaxMin())),
            OrthogonalConv2d(6, 4, 3, stride=2),
            features=16,
        ),
        4,
    )
    found = tightness(model, IMAGES, batch_size=7)
    x = IMAGES.clone().requires_grad_()
    first, second = model(x).topk(2, dim=1)[0].unbind(dim=1)
    (gradient,) = torch.autograd.grad((first - second).sum(), x)
    rows = model.stages[-1].weight
    pairs = model(IMAGES).topk(2, dim=1).indices
    bound = (rows[pairs[:, 0]] - rows[pairs[:, 1]]).norm(dim=1)
    for stage in list(model.stages)[:-1]:
        bound = bound * float(stage.lipschitz_bound())
    shares = gradient.flatten(1).norm(dim=1) / bound
    assert found.share == pytest.approx(float(shares.mean()), rel=1e-4)
    assert found.spread[0] <= found.share <= found.spread[1] <= 1
    assert all(0 <= stage.left <= stage.kept + 1e-6 <= 1 + 2e-6 for stage in found.stages)
    assert found.stages[0].left == pytest.approx(found.share)
    assert found.worst.kind in ("Spectrum", "Dense") and found.worst.kept < 0.95
    assert [stage.kind for stage in found.stages].count("Residual") == 1  # as one stage


def test_zero_padding_loosens_the_bound_on_small_images_but_not_for_pointwise_kernels() -> None:
    shares = []
    for kernel in (3, 1):
        torch.manual_seed(2)
        layers = OrthogonalConv2d(2, 6, kernel, stride=2), Householder(6)
        shares.append(tightness(freeze(network(*layers, features=24), 4), IMAGES).stages[2].kept)
    assert shares[0] < 0.95 and shares[1] == pytest.approx(1, abs=1e-5)


def test_the_command(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = ["--model.channels=4", "--limit=200", "--trainer.epochs=1", "--trainer.batch_size=32"]
    assert main(["train", *tiny, "--out", "one"]) == 0
    assert main(["train", *tiny, "--model.parametrization=soc", "--out", "other"]) == 0
    capsys.readouterr()
    assert main(["analyze", "tightness", "one", "other", "--limit", "30", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["written"] == ["one/analysis/tightness.json", "one/analysis/tightness.png"]
    assert (Path("one") / "analysis" / "tightness.png").read_bytes().startswith(b"\x89PNG")
    for row, name in zip(said["models"], ("one", "other"), strict=True):
        assert row["model"] == name and row["name"] == {"one": "LOT", "other": "SOC"}[name] and row["images"] == 30
        assert 0 < row["share"] <= 1 and row["stages"][0]["kind"] == "Normalize"
    assert main(["analyze", "tightness", "one", "--limit", "10"]) == 0
    assert "Gradient of the margin over its bound" in capsys.readouterr().out
    for arguments, sentence in (
        (["one", "one"], "one is named twice"),
        (["nothing"], "nothing is neither a run nor a model"),
        (["one", "--split", "half"], "there is no split half"),
        (["one", "--batch_size", "0"], "--batch_size cannot be 0"),
    ):
        assert main(["analyze", "tightness", *arguments]) == 2
        assert sentence in capsys.readouterr().err


def test_a_model_with_only_a_head_attains_its_bound() -> None:
    model = freeze(nn.Sequential(Normalize([0.5, 0.4], 0.25), nn.Flatten(), OrthogonalLinear(32, 3)).eval(), 4)
    assert tightness(model, IMAGES).share == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixels_have_the_precision_of_the_model(dtype: torch.dtype) -> None:
    """A model without a normalisation would not convert them."""
    torch.manual_seed(0)
    model = freeze(nn.Sequential(nn.Flatten(), OrthogonalLinear(32, 3)).to(dtype), (2, 4, 4), dtype)
    split = Split((255 * IMAGES).to(torch.uint8), torch.zeros(40, dtype=torch.int64))
    found = analyze({"model": Subject("model", "lot", model, split)}, None, Console(quiet=True))
    assert found["model"].share == pytest.approx(1, abs=1e-6)
    assert tightness(model, IMAGES) == tightness(model, IMAGES.to(dtype))


@pytest.mark.parametrize("name", [r"$x_$y", r"a\$b$\frac$", "_hidden", "a\x1b[2Jb", "a\udcffb"])
def test_a_name_is_drawn_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib reads $...$ as a formula, and leaves labels that begin with _ out of a legend."""
    monkeypatch.setattr("lotnet.analysis.tightness.png", lambda figure: (png(figure), figure))
    subjects = {n: Subject(n, "lot", None, None) for n in (name, "other")}  # type: ignore[arg-type]
    found = {n: Tightness([], 0.5, (0.4, 0.6)) for n in subjects}
    content, figure = draw(subjects, found, name)  # type: ignore[misc]
    assert content.startswith(b"\x89PNG")
    first, _ = (text.get_text().replace(r"\$", "$") for text in figure.axes[0].get_legend().get_texts())
    assert first == f"0.500: {printable(name)}"
    assert figure.get_suptitle().replace(r"\$", "$") == printable(name)
