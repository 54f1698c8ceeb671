"""`lotnet ablate`: the table of ablations, and one of them from start to end."""

import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from lotnet.cli.main import main
from lotnet.cli.verbs.ablate import _finish, _paper_row
from lotnet.cli.verbs.train import read_arguments
from lotnet.models import ImageSpec
from lotnet.paper import tables as paper
from lotnet.paper.ablations import ABLATIONS, BASE, PAPER_RECIPE
from lotnet.runs.directory import Run
from lotnet.training.signals import Interrupted

COLOUR = ImageSpec(3, 32, 32, 10, (0.49, 0.48, 0.45), 0.2507)
SMALL = ["--epochs=1", "--limit=60", "--model.channels=4", "--model.depth=5", "--trainer.batch_size=32"]


@pytest.mark.parametrize("name", ABLATIONS)
def test_variants_build_in_the_papers_setting_and_differ(name: str) -> None:
    configs = []
    for overrides in ABLATIONS[name].variants.values():
        arguments = ["--config", PAPER_RECIPE, *paper.arguments(BASE | overrides)]
        configs.append(read_arguments(arguments)[1])
        with torch.device("meta"):
            configs[-1].model.build(COLOUR)
    assert len({config.fingerprint() for config in configs}) == len(configs) >= 2
    assert all(config.trainer.epochs == 200 for config in configs)


def test_every_row_of_the_papers_ablations_is_found() -> None:
    for name in ("residual", "padding"):
        ablation = ABLATIONS[name]
        found = [_paper_row(variant, ablation) for variant in ablation.variants]
        assert found == paper.rows_of(ablation.table)
    techniques = ABLATIONS["techniques"]
    rows = {variant: _paper_row(variant, techniques) for variant in techniques.variants}
    assert {variant: row.clean for variant, row in rows.items() if row} == {"plain": 77.86, "creg-hh": 77.12}
    assert _paper_row("random", ABLATIONS["start"]) is None


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
        certificates = json.loads((out / row["variant"] / "certificates.json").read_text())
        assert row["clean"] == round(100 * certificates["summary"]["clean"], 2) and row["images"] == 60
    times = {file: file.stat().st_mtime_ns for file in out.rglob("*.safetensors")}
    (out / "ablation.json").unlink()
    (out / "lot" / "certificates.json").unlink()  # as if it had been killed before certifying
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert shown.count("is done already") == 3 and "77.86" in shown and "200 epochs" in shown
    assert json.loads((out / "ablation.json").read_text())["variants"] == stored["variants"]
    trained = [file for file in times if file.parent.name == "checkpoints" and file.stat().st_mtime_ns != times[file]]
    assert trained == []  # certified again, not trained again
    assert main([*command, "--seed=1"]) == 2
    assert "was trained with other settings: choose another --out" in capsys.readouterr().err


def test_certificates_of_an_unfinished_training_do_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `lotnet certify` writes them for the best epoch so far."""
    run = Run.create(tmp_path / "run", read_arguments(["--limit=60"])[1])
    (run.path / "certificates.json").write_text("{}")

    def note(*_: object) -> None:
        raise Interrupted(2)

    monkeypatch.setattr("lotnet.cli.verbs.ablate.train", note)
    with pytest.raises(Interrupted):
        _finish(run, "cpu", Console(quiet=True))


def test_the_list_and_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["ablate"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ABLATIONS)
    for arguments, words in (
        (["residul"], "did you mean residual?"),
        (["residual", "--model.residual=true"], "leave --model.residual out"),
        (["padding", "--model.parametrization=eco"], "variant circular cannot work on digits: ECO with circular"),
        (["start", "--trainer.devices=2"], "in one process"),
        (["start", "--epochs=0"], "at least 1"),
        (["start", "--limit=20"], "do not fill one batch"),
        (["start", "--model.dept=5"], "did you mean --model.depth?"),
    ):
        assert main(["ablate", *arguments]) == 2
        sentence = capsys.readouterr().err
        assert words in sentence and sentence.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # nothing is begun
