"""`lotnet ablate`: the table of ablations, and one ablation from start to end."""

import json
from pathlib import Path

import pytest
from PIL import Image

from lotnet.cli.main import main
from lotnet.cli.verbs.ablate import read_arguments
from lotnet.paper.ablation_runs import make_variants
from lotnet.paper.ablations import ABLATIONS

SMALL = ["--epochs=1", "--limit=60", "--model.channels=4", "--model.depth=5", "--trainer.batch_size=32"]


def test_an_ablation_runs_and_is_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "residual"
    command = ["ablate", "residual", *SMALL, "--device=cpu", "--out", str(out)]
    assert main([*command, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    stored = json.loads((out / "ablation.json").read_text())
    assert printed["variants"] == stored["variants"] and stored["format"] == 1
    assert [row["variant"] for row in stored["variants"]] == ["soc", "soc-residual", "lot", "lot-residual"]
    assert [row["paper"]["clean"] for row in stored["variants"]] == [76.90, 76.97, 77.16, 77.86]
    for row in stored["variants"]:
        certificates = json.loads((out / row["variant"] / "certificates-test-60.json").read_text())
        assert row["clean"] == round(100 * certificates["summary"]["clean"], 2) and row["images"] == 60
    times = {file: file.stat().st_mtime_ns for file in out.rglob("*.safetensors")}
    (out / "ablation.json").unlink()
    (out / "lot" / "certificates-test-60.json").unlink()  # as if it had been killed before certifying
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert shown.count("is done already") == 3 and "77.86" in shown and "200 epochs" in shown
    assert json.loads((out / "ablation.json").read_text())["variants"] == stored["variants"]
    trained = [file for file in times if file.parent.name == "checkpoints" and file.stat().st_mtime_ns != times[file]]
    assert trained == []  # it is only certified again, not trained again
    assert main([*command, "--seed=1"]) == 2
    assert "was trained with other settings: choose another --out" in capsys.readouterr().err


def test_the_list_of_ablations_and_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "tuned.yaml"
    recipe.write_text("data: {name: cifar10}\ninit: lipconvnet5-cifar10\n")
    assert main(["ablate"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ABLATIONS)
    for arguments, words in (
        (["residul"], "did you mean residual?"),
        (["residual", "--model.residual=true"], "leave --model.residual out"),
        (["steps", "--model.options.condition=3"], "leave --model.options.condition out"),
        (["steps", "--model.options={condition: 3}"], "leave condition out of --model.options, or"),
        (["padding", "--init", "lipconvnet5-cifar10"], "from random weights: leave --init out"),
        (["padding", "--config", "tuned.yaml"], "tuned.yaml starts from another model"),
        (["padding", "--model.parametrization=eco"], "variant circular cannot work on digits: ECO with circular"),
        (["start", "--trainer.devices=2"], "in one process"),
        (["start", "--epochs=0"], "at least 1"),
        (["start", "--limit=20"], "do not fill one batch"),
        (["start", "--model.dept=5"], "did you mean --model.depth?"),
    ):
        assert main(["ablate", *arguments]) == 2
        sentence = capsys.readouterr().err
        assert words in sentence and sentence.count("\n") == 1
    assert list(tmp_path.iterdir()) == [recipe]  # no run was started


def test_options_of_the_layer_are_kept_beside_those_of_the_variants() -> None:
    for tolerance in (["--model.options.tolerance", "1e-3"], ["--model.options={tolerance: 1e-3}"]):
        _, settings, _ = read_arguments(["steps", *tolerance])
        options = [variant.config.model.options for variant in make_variants(settings, ABLATIONS["steps"])]
        assert options == [{"tolerance": 1e-3, "condition": condition} for condition in (2, 10, 100, 1000)]


def test_a_preset_keeps_the_depth_of_the_ablation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the depth 5 of the preset, there would be no residual connections to leave out."""
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path / "cache"))
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for n in range(20):
            Image.new("L", (8, 8), n).save(tmp_path / "images" / name / f"{n}.png")
    data = ["--data.name", f"folder:{tmp_path / 'images'}", "--preset=small", "--device=cpu"]
    _, settings, _ = read_arguments(["residual", *data])
    assert (settings.values["model.depth"], settings.values["trainer.batch_size"]) == (20, 2)
