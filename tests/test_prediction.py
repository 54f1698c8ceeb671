"""`lotnet predict` and its Python function, on a small random model."""

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lotnet import FrozenModel
from lotnet.certification import certify
from lotnet.certification.formatting import rounded_down, rounded_up
from lotnet.cli.main import main
from lotnet.data import load, to_unit
from lotnet.errors import InputError
from lotnet.prediction import Prediction, find_files, predict, read_pictures


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits")
    for n, image in enumerate(load("digits").test.images[:3]):
        Image.fromarray(image[0].numpy()).save(path / f"{n}.png")
    return path


def test_a_prediction_is_the_certificate_of_claim_b(model: FrozenModel) -> None:
    images = to_unit(load("digits").test.images[:5], torch.float64)
    names = model.spec.classes
    certificates = certify(model, images)
    predictions = predict(model, images, batch_size=2)
    for prediction, certificate in zip(predictions, certificates, strict=True):
        assert prediction.index == certificate.prediction
        assert prediction.label == names[prediction.index]
        assert prediction.radius == pytest.approx(certificate.radius_float, abs=1e-12)
        assert tuple(prediction.probabilities) == names
        assert sum(prediction.probabilities.values()) == pytest.approx(1)
        assert prediction.confidence == max(prediction.probabilities.values())
        assert prediction.label == max(prediction.logits, key=prediction.logits.__getitem__)
        assert prediction.radius_255 <= 255 * prediction.radius


def test_the_network_runs_once_for_each_batch(model: FrozenModel) -> None:
    program, images = model.astype(torch.float64), to_unit(load("digits").test.images[:5], torch.float64)
    expected, sizes = [program(x) for x in images.split(2)], []
    hook = next(iter(program)).register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    predictions = predict(program, images, batch_size=2)
    hook.remove()
    assert sizes == [2, 2, 1]
    assert [list(found.logits.values()) for found in predictions] == torch.cat(expected).tolist()


def test_printed_radii_never_exceed_proved_radii() -> None:
    assert str(rounded_down(0.99999, 4)) == "0.9999"
    assert (rounded_up(1.00001, 4), rounded_up(float("inf"))) == ("1.0001", "none")
    assert "below 0.9999 " in Prediction("bee", 1, {"bee": 1.0}, 0.99999).meaning
    assert "Nothing is proved" in Prediction("bee", 1, {"bee": 1.0}, 0.0).meaning


def test_files_folders_and_a_list_on_stdin(folder: Path, digits: Path, monkeypatch, capsys) -> None:
    answers = []
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{digits}/{n}.png\n" for n in range(3))))
    for images in ([str(digits / f"{n}.png") for n in range(3)], [str(digits)], ["-"]):
        assert main(["predict", str(folder), *images, "--json", "--device", "cpu"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1] == answers[2]
    assert [Path(image["image"]).name for image in answers[0]["images"]] == ["0.png", "1.png", "2.png"]
    expected = predict(FrozenModel.load(folder), to_unit(load("digits").test.images[:3], torch.float64))
    for image, prediction in zip(answers[0]["images"], expected, strict=True):
        assert image["changes"] == []
        assert {key: image[key] for key in prediction.to_dict()} == prediction.to_dict()


def test_the_text_says_label_confidence_radius_and_meaning(folder: Path, digits: Path, capsys) -> None:
    assert main(["predict", str(folder), str(digits / "0.png"), "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "0.png: ",
        "confidence",
        "certified l2 radius 0.",
        "/255",
        "claim B",
        "No change of the pixels",
        "[digit ",
    ):
        assert words in printed
    assert "The radius is in the file's own pixels, 8 x 8 grey pixels." in printed
    assert "the model's input" not in printed


def test_another_size_and_mode_are_converted_and_reported(folder: Path, tmp_path: Path, capsys) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    assert main(["predict", str(folder), str(tmp_path / "noise.png"), "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "the middle 20 x 20 of 20 x 30 pixels; 20 x 20 pixels resized to 8 x 8; mode RGB converted to L" in printed
    assert "about changes of the file itself nothing is proved" in printed
    (picture,) = read_pictures([tmp_path / "noise.png"], (3, 32, 32))
    assert picture.pixels.shape == (3, 32, 32)
    assert picture.changes == ("the middle 20 x 20 of 20 x 30 pixels", "20 x 20 pixels resized to 32 x 32")
    exact = noise[:20, :20]
    Image.fromarray(exact).save(tmp_path / "exact.png")
    (picture,) = read_pictures([tmp_path / "exact.png"], (1, 20, 20))
    luma = np.asarray(Image.fromarray(exact).convert("L"))
    assert np.array_equal(picture.pixels[0].numpy(), luma)


def test_the_scope_of_a_radius_of_a_grey_file_and_a_model_in_colour(tmp_path: Path) -> None:
    """A change of one grey level changes three levels of the input, so the radius of the file is smaller."""
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(tmp_path / "grey.png")
    (picture,) = read_pictures([tmp_path / "grey.png"], (3, 8, 8))
    assert picture.changes == ("mode L converted to RGB",)
    assert "8 x 8 RGB pixels that the model reads" in picture.scope(0.3)
    assert picture.scope(0.3).endswith("in the file's own grey pixels it is 0.1732.")
    (picture,) = read_pictures([tmp_path / "grey.png"], (1, 8, 8))
    assert picture.scope(0.3) == "The radius is in the file's own pixels, 8 x 8 grey pixels."
    (picture,) = read_pictures([tmp_path / "grey.png"], (1, 4, 8))
    assert picture.pixels.shape == (1, 4, 8)
    assert picture.changes == ("the middle 4 x 8 of 8 x 8 pixels",)


def test_what_is_said_about_alpha_and_sixteen_bits(tmp_path: Path) -> None:
    """Without alpha, levels are those of the file; of 16 bits, only the upper ones are read."""
    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 4), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "alpha.png")
    (picture,) = read_pictures([tmp_path / "alpha.png"], (3, 8, 8))
    assert picture.changes == ("the alpha channel dropped",)
    assert picture.scope(0.3) == "The radius is in the file's own pixels without their alpha channel, 8 x 8 RGB pixels."
    assert np.array_equal(picture.pixels.permute(1, 2, 0).numpy(), noise[:, :, :3])
    Image.fromarray(noise[:, :, 0].astype(np.uint16) * 256).save(tmp_path / "deep.png")
    (picture,) = read_pictures([tmp_path / "deep.png"], (1, 8, 8))
    assert picture.changes[0] == "the upper 8 of 16 bits kept"
    assert "nothing is proved, because its levels were computed anew and rounded" in picture.scope(0.3)


def test_a_folder_may_hold_other_files(folder: Path, digits: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(digits, tmp_path / "inbox")
    (tmp_path / "inbox" / "notes.txt").write_text("three digits")
    assert main(["predict", str(folder), str(tmp_path / "inbox"), "--json", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["images"]) == 3
    assert err == f"{tmp_path / 'inbox'}: 1 file is skipped because its name does not end like an image's: notes.txt\n"


def test_bad_input_gives_a_one_sentence_error(folder: Path, digits: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    def sentence(*arguments: str) -> str:
        assert main(["predict", *arguments]) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("lotnet: ") and said.err.count("\n") == 1
        return said.err

    good = (digits / "0.png").read_bytes()
    (tmp_path / "half.png").write_bytes(good[: len(good) // 2])
    (tmp_path / "empty").mkdir()
    assert "half.png does not decode" in sentence(str(folder), str(tmp_path / "half.png"))
    assert "a radius is a number or a fraction" in sentence(str(folder), str(digits), "--abstain-below", "far")
    assert "there is no image" in sentence(str(folder), str(tmp_path / "missing.png"))
    assert "holds no images" in sentence(str(folder), str(tmp_path / "empty"))
    assert "lotnet train" in sentence(str(tmp_path / "empty"), str(digits))
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert "no images to predict" in sentence(str(folder), "-")
    assert "--batch_size cannot be 0: give 1 or more" in sentence(str(folder), str(digits), "--batch_size", "0")


def test_a_damaged_picture_does_not_stop_the_others(folder: Path, digits: Path, tmp_path: Path, capsys) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    assert main(["predict", str(folder), str(bad), str(digits), "--json", "--device", "cpu"]) == 2
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert [Path(image["image"]).name for image in answer["images"]] == ["0.png", "1.png", "2.png"]
    assert list(answer["failed"]) == [str(bad)]
    assert err.startswith("lotnet: ") and "bad.png does not decode" in err and err.count("\n") == 1


def test_a_table_of_a_folder_and_answers_that_abstain(folder: Path, digits: Path, tmp_path: Path, capsys) -> None:
    table = tmp_path / "answers.csv"
    arguments = ["predict", str(folder), str(digits), "--device", "cpu", "--csv", str(table)]
    assert main(arguments) == 0
    rows = list(csv.DictReader(table.open()))
    expected = predict(FrozenModel.load(folder), to_unit(load("digits").test.images[:3], torch.float64))
    assert [row["answer"] for row in rows] == [found.label for found in expected]
    assert all(0 <= float(row["radius"]) <= found.radius for row, found in zip(rows, expected, strict=True))
    middle = sorted(found.radius for found in expected)[1]
    assert main([*arguments, "--abstain-below", str(middle)]) == 0
    answers = [row["answer"] for row in csv.DictReader(table.open())]
    assert answers == [found.label if found.radius >= middle else "uncertain" for found in expected]
    capsys.readouterr()
    assert main(["predict", str(folder), str(digits / "0.png"), "--device", "cpu", "--abstain-below", "100"]) == 0
    assert "0.png: uncertain (the radius is smaller than asked for), most likely [digit" in capsys.readouterr().out


def test_the_function_refuses_bad_input(model: FrozenModel) -> None:
    with pytest.raises(InputError, match="NaN"):
        predict(model, torch.full((1, 1, 8, 8), torch.nan))
    with pytest.raises(InputError, match="freeze it first"):
        predict(torch.nn.Linear(1, 1), torch.zeros(1, 1, 8, 8))
    with pytest.raises(InputError, match=r"torch\.stack"):
        predict(model, [torch.zeros(1, 8, 8)])
    with pytest.raises(InputError, match="at least one image"):
        predict(model, torch.zeros(1, 1, 8, 8), batch_size=0)
    with pytest.raises(InputError, match="pass it tensors"):
        read_pictures(["any.png"], (2, 8, 8))
    with pytest.raises(InputError, match="no images to predict"):
        find_files([])
