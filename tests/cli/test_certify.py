"""`lotnet certify` and `lotnet attack`, on a small trained run."""

import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lotnet.cli.main import main
from lotnet.frozen.model import FrozenModel
from lotnet.load_model import load_model
from lotnet.runs.certificates import FILE
from lotnet.runs.directory import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "tiny"
    arguments = [
        "--model.channels=4",
        "--limit=300",
        "--trainer.epochs=6",
        "--trainer.batch_size=32",
        "--out",
        str(path),
    ]
    assert main(["train", *arguments]) == 0
    return path


def test_certify_prints_three_certificates_and_writes_one_for_each_image(run: Path, capsys) -> None:
    assert main(["certify", str(run), "--limit", "60", "--radii", "0.05", "36/255"]) == 0
    printed = capsys.readouterr().out
    for words in ("standard certificate", "claim A", "claim B", "at 36/255", "By class", "Layers"):
        assert words in printed
    assert "Certified accuracy on 60 of 359 test images, clean" in printed
    written = json.loads((run / "certificates-test-60.json").read_text())
    assert written["format"] == 1 and (written["complete"], written["total"]) == (False, 359)
    assert len(written["images"]) == written["summary"]["images"] == 60
    for image in written["images"]:
        assert 0 <= image["radius_float"] <= image["radius_real"]
        assert image["radius_real"] == pytest.approx(image["radius_plain"], rel=1e-5)
    summary = written["summary"]
    right = [i for i in written["images"] if i["prediction"] == i["label"]]
    assert summary["clean"] == pytest.approx(len(right) / 60)
    held = sum(i["radius_float"] > 36 / 255 for i in right) / 60
    assert summary["certified"]["float"][1] == pytest.approx(held)
    assert summary["linf_mean_radius"] == pytest.approx(summary["mean_radius"]["float"] / 8)
    assert summary["curve"]["certified"] == sorted(summary["curve"]["certified"], reverse=True)
    assert sum(c["images"] for c in summary["classes"]) == 60
    assert all(row["lipschitz_bound"] > 0 for row in written["audit"])


def test_certificates_of_a_part_never_replace_those_of_all(run: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "certificates"
    everything = ["certify", str(run), "--out", str(out), "--device", "cpu"]
    assert main(everything) == 0
    before = [(out / name).read_bytes() for name in ("certificates.json", "model/README.md")]
    capsys.readouterr()
    for part, name in ((["--limit", "20"], "test-20"), (["--split", "train", "--limit", "30"], "train-30")):
        assert main([*everything, *part, "--json"]) == 0
        path = Path(json.loads(capsys.readouterr().out)["written"])
        assert path == out / f"certificates-{name}.json"
        assert json.loads(path.read_text())["complete"] is False
        assert [(out / name).read_bytes() for name in ("certificates.json", "model/README.md")] == before
    assert json.loads(before[0])["complete"] is True


def test_parts_have_files_of_their_own_in_any_order(run: Path, tmp_path: Path, capsys) -> None:
    """Training images and a part of the test images, certified before all test images; readers prefer the latter."""
    out = Path(shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("certificates*")))

    def kept() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in out.glob("certificates*")}

    names: list[str] = []
    for part in ("--split=train --limit=30", "--limit=20", "--limit=40", "--limit=10", ""):
        before = kept()
        assert main(["certify", str(out), *part.split(), "--device=cpu", "--json"]) == 0
        names.append(Path(json.loads(capsys.readouterr().out)["written"]).name)
        assert before.items() < kept().items()
        best = max(names, key=lambda name: (name == "certificates.json", "test" in name, name))
        read = Run.open(out).certification()
        assert json.loads((out / best).read_text())["images"] == [asdict(image) for image in read.images]
        assert load_model(out).note is None
        card = (out / "model" / "README.md").read_text()
        some = "" if read.complete else f" of the {read.total}"
        assert f"{len(read.images)}{some} images of the {read.split} split of digits" in card
        assert main(["report", str(out)]) == 0
        shown = {"train": "30 of 300 training images", "test": f"{len(read.images)} of 359 test images"}[read.split]
        page = (out / "report.html").read_text()
        assert page.count("359 test images" if read.complete else shown) == 2  # at the top and in the provenance
        capsys.readouterr()
    assert names == [*(f"certificates-{part}.json" for part in ("train-30", "test-20", "test-40", "test-10")), FILE]
    assert main(["certify", str(out), "--limit=20", "--radii=20/255", "--device=cpu"]) == 0
    assert "Kept the 20 certificates that are there" in capsys.readouterr().out
    assert main(["record", str(out), "--to", str(tmp_path / "results")]) == 0
    Run.create(out, Run.open(out).config, overwrite=True)
    assert kept() == {}


def test_a_part_that_an_earlier_version_stored_as_all_is_kept(run: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("certificates*")))
    assert main(["certify", str(out), "--limit=20", "--device=cpu"]) == 0
    part = out / "certificates-test-20.json"
    content = json.loads(part.read_text())
    del content["total"]
    part.rename(out / FILE).write_text(json.dumps(content))
    assert Run.open(out).certification().images_in_words() == "20 of the test images"
    assert main(["certify", str(out), "--device=cpu"]) == 0
    assert json.loads(part.read_text()) == content
    assert Run.open(out).certification().images_in_words() == "359 test images"


def test_a_part_of_the_test_images_is_not_recorded(run: Path, tmp_path: Path, capsys) -> None:
    assert main(["certify", str(run), "--limit", "20"]) == 0
    assert main(["record", str(run), "--to", str(tmp_path)]) == 2
    assert "is certified on a part of the test images" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_report_shows_the_training_images_that_were_certified(run: Path, tmp_path: Path, capsys) -> None:
    run = Path(shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("certificates*")))
    opened = load_model(str(run))
    labels = opened.split("train", 40).labels
    assert len(opened.split("train", None)) == 300, "those it was trained with"
    assert len(opened.split("test", None)) == 359, "all"
    assert main(["certify", str(run), "--split", "train", "--limit", "40"]) == 0
    capsys.readouterr()
    assert main(["report", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] is True
    certified = json.loads((run / "certificates-train-40.json").read_text())["images"]
    assert [image["label"] for image in certified] == labels.tolist()


def test_a_frozen_folder_certifies_like_its_run(run: Path, capsys) -> None:
    assert main(["certify", str(run), "--limit", "20", "--json"]) == 0
    from_run = json.loads(capsys.readouterr().out)
    assert main(["certify", str(run / "model"), "--limit", "20", "--json"]) == 0
    from_folder = json.loads(capsys.readouterr().out)
    assert from_folder["checksum"] == from_run["checksum"]
    assert from_folder["summary"] == from_run["summary"]


def test_attack_never_beats_a_certificate(run: Path, capsys) -> None:
    assert main(["attack", str(run), "--limit", "24", "--steps", "10", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["counterexamples"] == []
    assert report["certified"] <= report["attacked"]["pgd_l2"] <= report["clean"]
    written = json.loads((run / "attacks.json").read_text())
    assert written["images"] == 24
    # The printed JSON equals the written file, except for the pictures.
    assert all("perturbed" in found for found in written["nearest"]) and written["nearest"]
    for found in written["nearest"]:
        del found["perturbed"]
    assert {**written, "written": report["written"]} == {**report, "format": 1}


def test_a_missing_extra_is_reported_at_once(run: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    assert main(["attack", str(run), "--autoattack"]) == 2
    printed = capsys.readouterr()
    assert "pip install pyautoattack" in printed.err and printed.err.count("\n") == 1 and printed.out == ""


def test_a_broken_certificate_is_shown_and_saved_and_fails_the_command(run: Path, monkeypatch, capsys) -> None:
    """If a radius were ten times too large, the command would say so."""
    from lotnet.attacks import report
    from lotnet.certification import certify

    def boastful(model, images, labels=None, **settings):
        honest = certify(model, images, labels, **settings)
        honest.radii["float"] = honest.radii["float"] * 10
        return honest

    monkeypatch.setattr(report, "certify", boastful)
    assert main(["attack", str(run), "--limit", "12", "--steps", "10"]) == 1
    printed = capsys.readouterr().out
    assert "CERTIFICATES BROKEN" in printed and "changes the prediction from" in printed
    examples = json.loads((run / "attacks.json").read_text())["counterexamples"]
    assert examples and all(len(example["perturbed"][0]) == 8 for example in examples)


def test_bad_input_gives_a_one_sentence_error(run: Path, tmp_path: Path, capsys) -> None:
    def sentence(*arguments: str) -> str:
        assert main(list(arguments)) == 2
        said = capsys.readouterr().err.strip()
        assert said.startswith("lotnet: ") and "\n" not in said
        return said

    assert "lotnet train" in sentence("certify", str(tmp_path / "nothing"))
    assert "36/255" in sentence("certify", str(run), "--radii", "a lot")
    assert "negative" in sentence("certify", str(run), "--radii=-1")
    assert "test or train" in sentence("certify", str(run), "--split", "tset")
    assert "device" in sentence("certify", str(run), "--device", "cuda:99")
    assert "--batch_size cannot be 0: give 1 or more" in sentence("certify", str(run), "--batch_size=0")
    for option in ("batch_size", "steps", "restarts"):
        assert f"--{option} cannot be" in sentence("attack", str(run), f"--{option}=-1")
    assert "leave --autoattack out" in sentence("attack", str(run), "--table=linf", "--autoattack")
    frozen = FrozenModel.load(run / "model")
    frozen.save(tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    name = next(name for name in tensors if name.endswith("weight"))
    tensors[name] = tensors[name] + torch.full_like(tensors[name], 1e-3)
    save_file(tensors, tmp_path / "model" / "model.safetensors")
    assert "not the one that was frozen" in sentence("certify", str(tmp_path / "model"))
    (tmp_path / "model" / "model.safetensors").write_bytes(b"short")
    assert "damaged" in sentence("certify", str(tmp_path / "model"))
