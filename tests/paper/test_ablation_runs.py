"""Variants of an ablation: their settings, their rows in the paper, their runs, and the file of the results."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from lotnet.cli.verbs.train import read_arguments
from lotnet.config import RunConfig
from lotnet.errors import InputError
from lotnet.models import ImageSpec
from lotnet.paper import ablation_runs
from lotnet.paper import tables as paper
from lotnet.paper.ablation_runs import Variant, finish, paper_row, run_variants
from lotnet.paper.ablations import ABLATIONS, BASE, PAPER_RECIPE
from lotnet.runs.directory import Run
from lotnet.training.signals import Interrupted

COLOUR = ImageSpec(3, 32, 32, 10, (0.49, 0.48, 0.45), 0.2507)
FORMAT_1 = Path(__file__).parent / "ablation-format-1.json"


def in_paper(overrides: paper.Overrides) -> RunConfig:
    return read_arguments(["--config", PAPER_RECIPE, *paper.arguments(BASE | overrides)])[1]


@pytest.mark.parametrize("name", ABLATIONS)
def test_variants_build_in_the_papers_setting_and_differ(name: str) -> None:
    configs = [in_paper(overrides) for overrides in ABLATIONS[name].variants.values()]
    for config in configs:
        with torch.device("meta"):
            config.model.build(COLOUR)
    assert len({config.fingerprint() for config in configs}) == len(configs) >= 2
    assert all(config.trainer.epochs == 200 for config in configs)


def test_every_row_of_the_papers_ablations_is_found() -> None:
    def rows(name: str) -> dict[str, paper.Row | None]:
        ablation = ABLATIONS[name]
        return {variant: paper_row(ablation, in_paper(overrides)) for variant, overrides in ablation.variants.items()}

    for name in ("residual", "padding"):
        assert list(rows(name).values()) == paper.rows_of(ABLATIONS[name].table)
    found = {variant: row.clean for variant, row in rows("techniques").items() if row}
    assert found == {"plain": 77.86, "creg-hh": 77.12}
    assert set(rows("start").values()) == {None}


def test_certificates_of_an_unfinished_run_do_not_mark_it_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lotnet certify` writes them for the best epoch so far."""
    run = Run.create(tmp_path / "run", read_arguments(["--limit=60"])[1])
    (run.path / "certificates.json").write_text("{}")

    def stop(*_: object) -> None:
        raise Interrupted(2)

    monkeypatch.setattr("lotnet.paper.ablation_runs.train", stop)
    with pytest.raises(Interrupted):
        finish(run, "cpu", Console(quiet=True))


def test_nothing_is_written_unless_every_variant_works(tmp_path: Path) -> None:
    config = read_arguments(["--limit=60", "--trainer.batch_size=32"])[1]
    other = replace(config, trainer=replace(config.trainer, batch_size=64))
    variants = [Variant("good", {}, config, None), Variant("bad", {}, other, None)]
    with pytest.raises(InputError, match="do not fill one batch of 64"):
        run_variants("mine", "one good, one bad", variants, tmp_path / "out", "cpu", Console(quiet=True))
    assert not (tmp_path / "out").exists()


def test_a_file_of_the_first_version_opens_and_survives(tmp_path: Path) -> None:
    """`lotnet ablate` wrote the file when results had no types."""
    result = ablation_runs.read(FORMAT_1)
    assert (result.ablation, len(result.variants)) == ("residual", 4)
    assert [row.paper and row.paper.clean for row in result.variants] == [76.90, 76.97, 77.16, 77.86]
    without = replace(result, variants=(replace(result.variants[0], paper=None),))
    for written in (result, without):
        ablation_runs.write(tmp_path / "again.json", written)
        assert ablation_runs.read(tmp_path / "again.json") == written
    ablation_runs.write(tmp_path / "again.json", result)
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(FORMAT_1.read_text())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is damaged .*: delete it"),
        ("[]", "is damaged"),
        ('{"format": 1}', "is damaged"),
        ('{"format": 7}', "format 7"),
    ],
)
def test_a_damaged_file_is_refused(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "ablation.json"
    path.write_text(content)
    with pytest.raises(InputError, match=words):
        ablation_runs.read(path)
