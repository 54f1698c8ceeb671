"""`lotnet report`: the content of the page without a browser, and the input it refuses."""

import json
import math
import re
import shutil
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_runs import NAMES, RADII, add_attacks, certified_share, made_up_data, made_up_run, read
from torch import nn

from lotnet import FrozenModel
from lotnet.cli.main import main
from lotnet.data import Split
from lotnet.frozen.model import FROZEN
from lotnet.losses import LOSSES, CrossEntropy
from lotnet.models import ImageSpec, ModelConfig
from lotnet.paper.titles import joined, words
from lotnet.report import collect, render
from lotnet.report.acronyms import expanded
from lotnet.report.chart import Axes, chart, tick_step
from lotnet.report.curves import what_to_see
from lotnet.report.gallery import gallery
from lotnet.report.layers import layer_title
from lotnet.report.perturbation import strip
from lotnet.runs.data import subset_indices

PAPER = {"model": {"kind": "lipconvnet", "activation": "hh1"}, "loss": {"kind": "creg"}}


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Split:
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path / "data"))
    return made_up_data(tmp_path / "data")


class Cells(HTMLParser):
    """The text of every table cell, row by row."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data.strip()


def row(page: str, name: str) -> list[str]:
    return next(cells for cells in Cells(page).rows if cells and cells[0] == name)


def test_the_tables_hold_the_numbers_without_javascript(pictures: Split, tmp_path: Path, capsys) -> None:
    run = made_up_run(tmp_path / "mine", pictures.labels, **PAPER)
    add_attacks(run, pictures, [1, 2])
    assert main(["report", str(run), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    page = (run / "report.html").read_text()
    assert said == {"written": str(run / "report.html"), "bytes": len(page.encode()), "images": True}
    shares = [certified_share(run, radius) for radius in (-1, *RADII)]
    assert row(page, "mine")[1:5] == [f"{share:.2%}" for share in shares]
    assert row(page, "Paper: LipConvnet-5, LOT")[1:5] == ["76.34%", "62.07%", "47.52%", "33.99%"]
    assert row(page, "Difference, points")[1] == f"{100 * shares[0] - 76.34:+.2f}"
    for label, name in enumerate(NAMES):
        mine = [f"{100 * certified_share(run, radius, label):.1f}%" for radius in (36 / 255, -1)]
        assert row(page, name)[2:] == mine
    assert row(page, "1 convolution, stored as a kernel")[1:] == ["1.000000000", "2.0e-06", "1.20 s"]
    assert row(page, "mine, best and last")[1] == "5"
    assert row(page, "Commit")[1] == "c0ffee" and row(page, "Command")[1] == "lotnet train --seed 0"
    assert row(page, "loss.kind")[1] == "creg"
    assert "60.00% at 36/255" in page and str(tmp_path) not in page


def test_several_runs_stand_side_by_side(pictures: Split, tmp_path: Path) -> None:
    one = made_up_run(tmp_path / "a" / "run", pictures.labels)
    other = made_up_run(tmp_path / "b" / "run", pictures.labels[subset_indices(300, 120)], seed=1)
    assert main(["report", str(one), str(other), "--out", str(tmp_path / "both.html")]) == 0
    page = (tmp_path / "both.html").read_text()
    for run in (one, other):  # the same name: the page shows their paths
        assert row(page, str(run))[2] == f"{certified_share(run, 36 / 255):.2%}"
    assert "different numbers of images" in page and "LipConvnet-5, LOT, cross-entropy" in page
    assert row(page, "seed")[1:] == ["0", "1"] and '<tr class="changed"><th scope="row">seed</th>' in page
    assert "The runs differ in one setting, <code>seed</code>" in page


def test_runs_that_differ_in_several_settings_are_compared_with_a_list_of_them(pictures: Split, tmp_path: Path) -> None:
    one = made_up_run(tmp_path / "one", pictures.labels, loss={"kind": "offset", "offset": 0.25})
    other = made_up_run(tmp_path / "other", pictures.labels, trainer={"epochs": 7}, loss={"kind": "emma"})
    page = render(collect([one, other]), None, 36 / 255)
    assert "differ in 4 settings, so a difference in accuracy cannot be put down to one of them" in page
    rows = Cells(page.partition("Settings that differ")[2].partition("</table>")[0]).rows
    assert {cells[0] for cells in rows[1:]} == {"loss.kind", "loss.offset", "loss.radius", "trainer.epochs"}
    assert ["loss.offset", "0.25", "not one of its settings"] in rows and ["loss.kind", "offset", "emma"] in rows
    assert "LOT, offset cross-entropy" in page and "LOT, EMMA loss" in page and "different losses" in page
    assert "The runs have the same settings" in render(collect([one, copied(one)]), None, 0.0)


def copied(run: Path) -> Path:
    return Path(shutil.copytree(run, run.with_name("copy")))


def test_layers_say_what_is_multiplied(pictures: Split, tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", pictures.labels)
    page = render(collect([run]), None, 0.0)
    assert "the bounds of the first 1 of 2 layers, multiplied, give 3.98" in page
    assert row(page, "Product of the first 1 of 2 layers")[1] == "3.980000000"
    assert "residual block" not in page
    certificates = read(run)
    certificates["audit"][1]["name"] = "model.1.shortcut.0"
    (run / "certificates.json").write_text(json.dumps(certificates))
    page = render(collect([run]), None, 0.0)
    assert "A residual block counts as" in page and "concatenated" not in page
    certificates["audit"][1]["name"] = "model.1.branches.0.0"
    (run / "certificates.json").write_text(json.dumps(certificates))
    assert "Branches that are concatenated count as" in render(collect([run]), None, 0.0)


def test_acronyms_are_expanded_as_in_the_glossary() -> None:
    glossary = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()
    found = expanded(["LipConvnet-5, LOT, CReg loss", "LipConvnet-5, SOC, EMMA loss", "BCOP", "ECO", "RKO", "Cayley"])
    assert list(found) == ["LOT", "SOC", "BCOP", "ECO", "RKO", "CReg", "EMMA"]
    assert all(f"**{acronym}** ({expansion}):" in glossary for acronym, expansion in found.items())


class OneLayer(ModelConfig):
    """A network that is not in the tables."""

    layers = 1

    def build(self, images: ImageSpec) -> nn.Sequential:
        return nn.Sequential(
            nn.Flatten(), self.make_head(images.channels * images.height * images.width, images.classes)
        )


class Hinge(CrossEntropy):
    """A loss that a user has added."""


def test_a_model_and_a_loss_of_ones_own_are_called_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "hinge", Hinge)
    assert joined(words(OneLayer(), Hinge())) == "OneLayer, LOT, hinge loss"


def test_captions_say_what_to_see_in_the_curve(pictures: Split, tmp_path: Path) -> None:
    runs = collect(
        [made_up_run(tmp_path / name, pictures.labels, seed=n, scale=n + 0.2) for n, name in enumerate("ab")]
    )
    half = np.median(runs[0].radii[runs[0].correct])
    assert f"correctly classified images are certified up to radius {half:.3f}" in what_to_see(runs[:1])
    apart = 100 * (runs[1].certified(36 / 255) - runs[0].certified(36 / 255))
    assert apart > 0 and f"At 36/255, b is ahead by {apart:.1f} points." in what_to_see(runs)
    assert "At 36/255, a and a are equal." in what_to_see([runs[0], runs[0]])


def test_every_frozen_layer_has_a_name_in_words() -> None:
    """Sequences and residual blocks are no rows of the table: their layers are."""
    kinds = {form.__name__.removeprefix("Frozen") for form in FROZEN.values()} - {"Sequential", "Residual"}
    assert all(layer_title("0", kind) != f"0 {kind}" for kind in kinds)


def test_the_perturbation_is_adversarial_with_a_model_and_random_without(
    model: FrozenModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path))
    images = Split(torch.randint(0, 256, (40, 1, 8, 8), dtype=torch.uint8), torch.arange(40) % 10)
    (run,) = collect([made_up_run(tmp_path / "run", images.labels)])
    adversarial, random = strip(run, images, model), strip(run, images, None)
    assert adversarial is not None and random is not None and adversarial.index == random.index
    for made in (adversarial, random):
        assert [step.norm for step in made.steps] == pytest.approx(RADII, rel=1e-4)
    assert adversarial.adversarial and all(step.predicted for step in adversarial.steps)
    assert not random.adversarial and all(step.predicted is None for step in random.steps)
    assert len({step.picture for step in (*adversarial.steps, *random.steps)}) == 6
    assert run.correct[adversarial.index] and adversarial.true == NAMES[run.labels[adversarial.index]]
    page = render([run], images, 0.0, model)
    assert "An adversarial perturbation" in page and "A random perturbation" in render([run], images, 0.0)


def test_the_gallery_shows_extremes_mistakes_and_neighbours(pictures: Split, tmp_path: Path) -> None:
    path = made_up_run(tmp_path / "run", pictures.labels[subset_indices(300, 200)])
    add_attacks(path, pictures, [5])
    places = subset_indices(300, 200).numpy()
    (run,) = collect([path])
    cards = gallery(run, pictures, 1)
    held = np.where(run.correct, run.radii, -1)
    assert [card.index for card in cards["most"] if card.top] == places[np.argsort(-held)[:10]].tolist()
    assert {card.label for card in cards["least"]} == set(range(10))
    assert [card.label for card in cards["classes"]] == list(range(10)) and all(card.top for card in cards["classes"])
    for card in cards["classes"]:
        radii = sorted(run.radii[run.correct & (run.labels == card.label)])
        assert card.radius == radii[len(radii) // 2] and card.predicted == card.true
    assert [card.radius for card in cards["least"]] == sorted(card.radius for card in cards["least"])
    assert all(card.predicted != card.true for card in cards["mistakes"])
    assert 10 < len(cards["most"]) <= 10 + 60
    # The attack numbered all 300 images: its number 5 is another image among the 200, or none.
    assert [card.index for card in cards["attacked"]] == [5] * (5 in places)
    add_attacks(path, pictures.select(slice(1, None)), [5], limit=300)  # not the image at that place
    assert gallery(collect([path])[0], pictures, 1)["attacked"] == []


def test_without_its_data_the_page_is_made_without_images(pictures: Split, tmp_path: Path, monkeypatch, capsys) -> None:
    run = made_up_run(tmp_path / "run", pictures.labels)
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path / "nowhere"))
    assert main(["report", str(run)]) == 0
    assert "lotnet data prepare cifar10" in capsys.readouterr().out
    page = (run / "report.html").read_text()
    assert "No images here: cifar10" in page and "<img" not in page and str(tmp_path) not in page


def test_the_page_makes_no_requests_and_runs_one_script(pictures: Split, tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", pictures.labels)
    name = "</script><script>alert(1)</script>"
    environment = read(run, "environment.json")
    environment["classes"][0] = name
    (run / "environment.json").write_text(json.dumps(environment))
    page = render(collect([run]), pictures, 36 / 255)
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
    assert (resources.files("lotnet") / "web" / "style.css").read_text() in page  # which the demo page shows too
    assert len(re.findall("<script", page)) == 2 and "default-src 'none'" in page.replace("&#39;", "'")
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)


def test_a_diverged_run_is_drawn_without_its_nonfinite_losses(pictures: Split, tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", pictures.labels)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    records[2]["loss"] = math.nan
    records[3]["loss"] = math.inf
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    page = render(collect([run]), None, 0.0)
    data = re.search(r'id="data">(.*?)</script>', page)
    assert data is not None and "NaN" not in data[1] and "Infinity" not in data[1]
    values = [y for _, y in json.loads(data[1])["charts"]["loss"]["lines"][0]["points"]]
    assert values == [2.0, 1.0, None, None, 0.4]


def test_ticks_are_round_numbers() -> None:
    assert [tick_step(span) for span in (1, 0.9, 4.1, 37, 1e-3)] == [0.2, 0.2, 1, 10, pytest.approx(2e-4)]
    made = chart("k", Axes("x", "y", (0, 1), percent=True, guides=RADII), [(0, "a", [(0, 0.0), (1, 0.73)])])
    assert [tick.text for tick in made.y_ticks] == ["0%", "20%", "40%", "60%", "80%"]
    assert made.lines[0].path == "M0 1000L1000 87.5"
    assert [tick.text for tick in made.guides] == [
        "36/255",
        "",
        "108/255",
    ]  # where names would overlap, one is left out
    epochs = chart("k", Axes("x", "y", (0, 3), whole=True), [(0, "a", [(1, 2.0), (3, 1.0)])])
    assert [tick.text for tick in epochs.x_ticks] == ["0", "1", "2", "3"]
    flat = chart("k", Axes("x", "y", (0, 2)), [(0, "a", [(1, 3.0), (2, 3.0)])])
    assert flat.y_range[0] <= 3 < flat.y_range[1]


@pytest.mark.parametrize("epochs", [0, 1, 400, 401, 1000, 1001])
def test_a_long_line_is_thinned_and_keeps_its_end(epochs: int) -> None:
    points = [(n, n / 2) for n in range(epochs)]
    (line,) = chart("k", Axes("x", "y", (0, 1001)), [(0, "a", points)]).lines
    assert len(line.points) <= 401 and set(line.points) <= set(points)
    assert line.points[:1] == points[:1] and line.points[-1:] == points[-1:]


def test_bad_input_gives_a_one_sentence_error(pictures: Split, tmp_path: Path, capsys) -> None:
    def sentence(*arguments: object) -> str:
        assert main(["report", *map(str, arguments)]) == 2
        said = capsys.readouterr().err.strip()
        assert said.startswith("lotnet: ") and "\n" not in said
        return said

    run = made_up_run(tmp_path / "run", pictures.labels)
    other = made_up_run(tmp_path / "other", pictures.labels, seed=1)
    assert "lotnet train" in sentence(tmp_path / "nothing")
    assert "twice" in sentence(run, run)
    assert "36/255" in sentence(run, "--radius", "far")
    assert "choose one below" in sentence(run, "--radius", "1e9")
    assert "is a folder" in sentence(run, "--out", tmp_path)
    assert "cannot write" in sentence(run, "--out", tmp_path / "no" / "where.html")
    certificates = read(other)
    (other / "certificates.json").write_text(json.dumps(certificates | {"split": "train"}))
    assert "make a page for each" in sentence(run, other)
    (other / "certificates.json").write_text(json.dumps(certificates))
    environment = read(other, "environment.json")
    larger = environment | {"images": environment["images"] | {"height": 16, "width": 16}}
    (other / "environment.json").write_text(json.dumps(larger))
    assert "3 x 16 x 16" in sentence(run, other)
    (other / "environment.json").write_text(json.dumps(environment))
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "best.safetensors").write_bytes(b"later weights")
    known = read(run)
    (run / "certificates.json").write_text(json.dumps(known | {"checkpoint": "of earlier weights"}))
    assert (
        f"was trained further after it was certified: make its certificates again with `lotnet certify {run}`"
        in sentence(run)
    )
    (run / "certificates.json").write_text(json.dumps(known))
    for broken in ({"format": 9}, {"images": []}, {"summary": {}}, {"audit": [{}]}, {"checksum": None}):
        (other / "certificates.json").write_text(json.dumps(certificates | broken))
        assert f"make it again with `lotnet certify {other}`" in sentence(other)
    certificates["images"][0]["label"] = 10
    (other / "certificates.json").write_text(json.dumps(certificates))
    assert "classes that the run does not have: make them again" in sentence(other)
    (other / "certificates.json").unlink()
    assert f"`lotnet certify {other}`" in sentence(other)
    (run / "attacks.json").write_text("{")
    assert f"`lotnet attack {run}`" in sentence(run)
    add_attacks(run, pictures, [1])
    (run / "attacks.json").write_text(json.dumps(read(run, "attacks.json") | {"checksum": "another"}))
    assert "another model" in sentence(run)
    (run / "attacks.json").unlink()
    (run / "metrics.jsonl").write_text('{"epoch": 1}\n')
    assert "metrics.jsonl is damaged" in sentence(run)
    (run / "environment.json").write_text("[]")
    assert "environment.json" in sentence(run)


def test_certificates_of_other_images_are_refused(pictures: Split, tmp_path: Path, capsys) -> None:
    run = made_up_run(tmp_path / "run", pictures.labels.flip(0))
    assert main(["report", str(run)]) == 2
    assert "other images than its data" in capsys.readouterr().err
