"""Your own images: from a folder to a certified model, through the command line."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import lotnet
from lotnet.cli.main import main
from lotnet.config import RunConfig
from lotnet.data import load as load_data
from lotnet.errors import InputError
from lotnet.load_model import load_model
from lotnet.runs.data import load_with_all_test_images
from lotnet.runs.directory import Run
from lotnet.runs.metrics import best_epoch

TINY = ("--model.depth=5", "--model.channels=4", "--trainer.epochs=1", "--trainer.batch_size=16", "--device=cpu")


def write_images(root: Path, mode: str = "L", size: tuple[int, int] = (12, 8), count: int = 20) -> Path:
    """Two classes: bright on the left, bright on the right. `size` is (width, height)."""
    rng = np.random.default_rng(0)
    for side in ("left", "right"):
        (root / side).mkdir(parents=True)
        for n in range(count):
            pixels = rng.integers(0, 100, size[::-1], dtype=np.uint8)
            half = slice(None, size[0] // 2) if side == "left" else slice(size[0] // 2, None)
            pixels[:, half] += 100
            Image.fromarray(pixels).convert(mode).save(root / side / f"{n:02}.png")
    return root


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path / "cache"))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images")


def test_grey_rectangles_keep_their_pixels_from_training_to_prediction(
    images: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    run = tmp_path / "run"
    assert main(["train", "--data.name", f"folder:{images}", "--out", str(run), *TINY]) == 0
    data = Run.open(run).config.data
    assert (data.side, data.width, data.channels) == (8, 12, "grey")
    assert Run.open(run).images().channels == 1
    assert main(["certify", str(run), "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main(["predict", str(run), str(images / "left" / "00.png"), "--json", "--device", "cpu"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["images"]
    assert answer["changes"] == []
    assert answer["scope"] == "The radius is in the file's own pixels, 8 x 12 grey pixels."
    monkeypatch.chdir(images.parent)  # a model folder knows the name of the folder, not its path
    assert main(["certify", str(run / "model"), "--device", "cpu"]) == 0  # reads the folder in the model's shape
    assert main(["report", str(run)]) == 0


def test_a_run_of_an_earlier_version_keeps_its_shape(images: Path) -> None:
    """It did not store the shape: images of a folder were RGB, 32 x 32."""
    config = RunConfig().override({"data.name": f"folder:{images}"})
    assert load_with_all_test_images(config).shape == (3, 32, 32)
    expected = load_data(config.data.name, side=32, channels="rgb")
    assert torch.equal(load_with_all_test_images(config).train.images, expected.train.images)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--data.side", "0"], "data.side must be at least 1, not 0"),
        (["--data.width", "8"], "data.width 8 is given without data.side, which is the height: give both"),
        (["--data.channels", "red"], "data.channels cannot be 'red': give one of grey, rgb\n"),
        (["--data.side", "a"], "data.side cannot be 'a': give a whole number\n"),
        (["--data.side", "65536"], "on images of 65536 x 65536 pixels needs more than"),
        (["--data.crop", "4"], "data.crop 4 shifts images of 8 x 12 pixels by half a side or more: give at most 3"),
    ],
)
def test_wrong_pixels_are_refused(options: list[str], sentence: str, images: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert main(["train", "--data.name", f"folder:{images}", "--out", str(out), *TINY, *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()


def train(images: Path, out: Path, *options: str) -> int:
    return main(["train", "--data.name", f"folder:{images}", "--out", str(out), *TINY, *options])


def test_without_validation_images_the_last_epoch_is_kept(images: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert train(images, out, "--data.validation=0", "--trainer.epochs=2") == 0
    said = capsys.readouterr()
    assert "32 to train on, the last epoch is kept, 8 to test" in said.err + said.out
    printed = " ".join((said.err + said.out).split())
    assert "Accuracy of the last epoch, trained on all images (epoch 2) on 8 test images" in printed
    assert "choose the best epoch" not in printed
    run = Run.open(out)
    assert [(record.clean, record.certified) for record in run.metrics()] == [(None, {}), (None, {})]
    assert best_epoch(run.metrics(), 36 / 255) == 2
    assert main(["certify", str(out), "--device", "cpu"]) == 0
    assert main(["report", str(out)]) == 0
    assert "2 of 2, the last: trained on all training images" in (out / "report.html").read_text()
    assert main(["record", str(out), "--to", str(tmp_path / "results")]) == 0
    assert "2, last kept: trained on all images" in (tmp_path / "results" / "README.md").read_text()


def test_a_run_starts_from_another_with_a_new_last_layer(images: Path, tmp_path: Path, capsys) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert train(images, first) == 0
    three = write_images(tmp_path / "three")
    write_images(tmp_path / "more")
    (tmp_path / "more" / "left").rename(three / "third")
    words = ["train", "--data.name", f"folder:{three}", "--init", str(first), "--out", str(second), "--device=cpu"]
    words += ["--trainer.epochs=1", "--trainer.batch_size=16", "--optimizer.lr=1e-12"]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"from {first} with a new last layer" in said
    before, after = Run.open(first).best_model().state_dict(), Run.open(second).best_model().state_dict()
    last = f"{len(Run.open(first).best_model()) - 1}."
    assert after[f"{last}weight"].shape[0] == 3
    kept = [name for name in before if not name.startswith(last)]
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in kept)
    assert Run.open(second).config.model == Run.open(first).config.model
    assert len(Run.open(second).environment().initial or "") == 64
    assert main(["train", "--resume", str(second), "--device=cpu"]) == 0  # the weights are those of its checkpoint


def test_weights_of_another_network_are_refused(images: Path, tmp_path: Path, capsys) -> None:
    assert train(images, tmp_path / "first") == 0
    settings = (tmp_path / "first" / "config.yaml").read_text()
    settings = settings.replace("channels: 4", "channels: 6").replace("init: null", f"init: {tmp_path / 'first'}")
    config = RunConfig.from_yaml(settings, "other.yaml")
    with pytest.raises(InputError, match=r"is another than that of .*: leave model settings out"):
        lotnet.train(config, tmp_path / "third", device="cpu", quiet=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--init", "lipconvnet9"], "there is no model lipconvnet9 to start from: name a run, a packed model or one"),
        (["--init", "lipconvnet5-cifar10", "--model.depth", "10"], "brings its own network: leave --model.depth out"),
        (["--init", "lipconvnet5-cifar10", "--data.side", "16"], "reads images of 3 x 32 x 32"),
        (["--data.validation", "1"], "data.validation must be at least 0 and below 1, not 1"),
    ],
)
def test_a_wrong_start_is_refused(options: list[str], sentence: str, images: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert main(["train", "--data.name", f"folder:{images}", "--out", str(out), "--device=cpu", *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certified run on a folder whose test images have a copy of a training image, and lack a class."""
    root = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOTNET_DATA", str(root / "cache"))
        write_images(root / "private" / "shapes" / "train")
        write_images(root / "private" / "shapes" / "test", count=3)
        write_images(root / "private" / "shapes" / "val", count=1)
        shutil.copy(root / "private/shapes/train/left/07.png", root / "private/shapes/test/left/07.png")
        shutil.rmtree(root / "private/shapes/test/right")
        for n in range(15):
            (root / f"private/shapes/train/right/{n:02}.png").unlink()
        assert train(root / "private" / "shapes", root / "run") == 0
        assert main(["certify", str(root / "run"), "--device", "cpu"]) == 0
    return root


NOTES = [
    "1 class has fewer than 20 training images: right (5)",
    "1 class has no test images: right",
    "4 of 4 test images (100.0%) are also training images, pixel by pixel: accuracies are too high",
]


def test_a_folder_that_is_not_read_is_noted_before_the_first_step(finished: Path, tmp_path: Path, capsys) -> None:
    """Only there: no other command could take it for a part of the data."""
    assert train(finished / "private" / "shapes", tmp_path / "run") == 0
    said, lines = capsys.readouterr(), []
    for line in (said.err + said.out).splitlines():
        lines += [line.split(maxsplit=1)[1]] if line.startswith("note ") else []
    val = "the folder val beside train and test is not part of the data set"
    few = (
        "only 2 images choose the best epoch, so the choice is mostly chance: --data.validation 0 trains on all images "
    )
    assert lines == [val, *NOTES, few + "and keeps the last epoch"]


def test_what_is_wrong_with_the_data_is_said_everywhere(finished: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("LOTNET_DATA", str(finished / "cache"))
    run = finished / "run"
    assert Run.open(run).certification().notes == NOTES
    capsys.readouterr()
    assert main(["certify", str(run), "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["notes"] == NOTES
    summary = found["summary"]
    assert sum(map(sum, summary["confusion"])) == summary["images"] == 4
    low, high = summary["intervals_95"]["clean"]
    assert low <= summary["clean"] <= high
    assert main(["report", str(run)]) == 0
    page, card = (run / "report.html").read_text(), (run / "model" / "README.md").read_text()
    for note in NOTES:
        assert note in page and note in card
    assert "95% interval" in page and "95% interval" in card and "Confusion matrix at" in page


def test_a_class_without_test_images_has_no_accuracy(finished: Path, monkeypatch, capsys) -> None:
    """Zero percent would say that all of its images are misclassified."""
    monkeypatch.setenv("LOTNET_DATA", str(finished / "cache"))
    run = finished / "run"
    capsys.readouterr()
    assert main(["certify", str(run), "--json", "--device", "cpu"]) == 0
    left, right = json.loads(capsys.readouterr().out)["summary"]["classes"]
    assert left["images"] == 4 and None not in (left["clean"], *left["certified"])
    assert (right["images"], right["clean"], set(right["certified"])) == (0, None, {None})
    assert main(["certify", str(run), "--device", "cpu"]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "–" in line)
    assert "right" in row and row.count("–") == 1 + len(right["certified"]) and "%" not in row
    assert f"| right | 0 |{' – |' * row.count('–')}\n" in (run / "model" / "README.md").read_text()
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert '<td data-class="0-1">–</td>\n        <td>–</td>' in page
    old = json.loads((run / "certificates.json").read_text())  # earlier versions stored 0
    old["summary"]["classes"][1] |= {"clean": 0.0, "certified": [0.0] * len(right["certified"])}
    (finished / "old.json").write_text(json.dumps(old))
    lotnet.save_pretrained(lotnet.load(run), finished / "old", finished / "old.json")
    assert "| right | 0 | – |" in (finished / "old" / "README.md").read_text()


def test_what_is_given_away_names_the_data_and_no_path(finished: Path, monkeypatch) -> None:
    monkeypatch.setenv("LOTNET_DATA", str(finished / "cache"))
    run = finished / "run"
    assert main(["report", str(run)]) == 0
    assert main(["export", str(run), "--to", "torch"]) == 0
    metadata = json.loads(next(iter(_archived(run / "model.pt2", "metadata.json"))))
    for text in ((run / "report.html").read_text(), (run / "model" / "README.md").read_text(), json.dumps(metadata)):
        assert "the folder shapes" in text
        assert str(finished) not in text and "private" not in text
    assert main(["pack", str(run), "--device", "cpu"]) == 0
    for folder in (run / "model", run / "packed"):
        assert lotnet.load(folder).spec.data == "folder:shapes"
        for file in folder.iterdir():
            assert str(finished).encode() not in file.read_bytes(), file
    assert Run.open(run).config.data.name == f"folder:{finished / 'private' / 'shapes'}"  # the run stays complete
    assert main(["record", str(run), "--to", str(finished / "results")]) == 0
    result = json.loads((finished / "results" / "run.json").read_text())
    assert result["config"]["data"]["name"] == "folder:shapes"
    result.pop("command")  # as it was typed
    assert str(finished) not in json.dumps(result)


@pytest.mark.parametrize("folder", ["model", "packed"])
@pytest.mark.parametrize("verb", ["certify", "attack"])
def test_a_model_folder_says_where_its_images_are_looked_for(
    folder: str, verb: str, finished: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("LOTNET_DATA", str(finished / "cache"))
    run = finished / "run"
    if not (run / "packed").exists():
        assert main(["pack", str(run), "--device", "cpu"]) == 0
    given = shutil.copytree(run / folder, tmp_path / "given")
    monkeypatch.chdir(tmp_path)
    words = [verb, str(given), "--device", "cpu", *(("--steps", "2") if verb == "attack" else ())]
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "was trained on the images in shapes, which is not here: run this in the folder that contains shapes" in said
    write_images(tmp_path / "shapes").joinpath("left").rename(tmp_path / "shapes" / "other")
    assert main(words) == 2
    assert "whose classes differ: run this in the folder that contains shapes" in capsys.readouterr().err
    monkeypatch.chdir(finished / "private")
    assert main(words) == 0


def test_a_folder_of_an_earlier_version_keeps_the_path_of_its_images(finished: Path, tmp_path: Path) -> None:
    """It opens as before, bit for bit, and finds its images anywhere. Saved again, it names no path."""
    model = lotnet.load(finished / "run")
    model.name_classes(model.spec.classes, f"folder:{finished / 'private' / 'shapes'}")
    model.save(tmp_path / "old")
    before = {file.name: file.read_bytes() for file in (tmp_path / "old").iterdir()}
    assert str(finished).encode() in before["config.json"]
    opened = load_model(tmp_path / "old")
    assert opened.model.checksum() == opened.model.spec.checksum == model.spec.checksum
    assert len(opened.split("test", None)) == 4
    lotnet.save_pretrained(opened.model, tmp_path / "new")
    assert str(finished).encode() not in (tmp_path / "new" / "config.json").read_bytes()
    assert opened.model.spec.data == model.spec.data, "the model itself is not changed"
    again = lotnet.load(tmp_path / "new")
    assert (again.spec.data, again.spec.classes) == ("folder:shapes", model.spec.classes)
    assert again.checksum() == model.checksum()
    assert {file.name: file.read_bytes() for file in (tmp_path / "old").iterdir()} == before


def _archived(path: Path, name: str) -> list[bytes]:
    with zipfile.ZipFile(path) as archive:
        return [archive.read(entry) for entry in archive.namelist() if entry.endswith(name)]


def test_certificates_are_kept_when_radii_are_added(finished: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("LOTNET_DATA", str(finished / "cache"))
    run = finished / "run"
    before = Run.open(run).certification()
    assert main(["certify", str(run), "--radii", "20/255", "--device", "cpu"]) == 0
    assert "Kept the 4 certificates that are there" in capsys.readouterr().out
    after = Run.open(run).certification()
    assert (after.images, after.audit, after.notes) == (before.images, before.audit, before.notes)
    assert after.summary.radii == sorted({20 / 255, *before.summary.radii})
    assert after.summary.at(before.summary.radii) == before.summary
    assert main(["certify", str(run), "--device", "cpu"]) == 0  # proved anew, with all radii
    assert Run.open(run).certification().summary == after.summary


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--limit", "1"],
            "with a limit of 1 image, none is left to choose the best epoch: raise the limit, or train on",
        ),
        (
            ["--limit", "1", "--data.validation=0"],
            "1 training image does not fill one batch of 16: lower trainer.batch",
        ),
        (["--limit", "8"], "do not fill one batch of 16: lower trainer.batch_size or raise the limit\n"),
        (["--data.validation=0.9"], "do not fill one batch of 16: lower trainer.batch_size or lower data.validation\n"),
    ],
)
def test_too_few_images_name_what_made_them_few(
    options: list[str], sentence: str, images: Path, tmp_path: Path, capsys
) -> None:
    assert train(images, tmp_path / "run", *options) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_classes_of_one_training_image_leave_none_to_choose(tmp_path: Path, capsys) -> None:
    write_images(tmp_path / "few", count=2)
    assert train(tmp_path / "few", tmp_path / "run") == 2
    sentence = (
        "only 2 training images of different classes, none is left to choose the best epoch: add images, or train on"
    )
    assert sentence in capsys.readouterr().err


def test_the_help_for_a_folder_shows_what_its_preset_chooses(images: Path, capsys) -> None:
    """32 training images, of which two choose the best epoch: the batch is an eighth of the others."""

    def shown(*words: str) -> str:
        with pytest.raises(SystemExit):
            main(["train", "--data.name", f"folder:{images}", *words, "--help"])
        return " ".join(capsys.readouterr().out.split())

    assert "Images per step, over all processes together. (default: 2)" in shown()
    assert "Images per step, over all processes together. (default: 4)" in shown("--data.validation", "0")
    assert "Channels of the first stage. (default: 32)" in shown()
    assert (
        "Number of convolutions at side 32: 5, 10, ..., 40. Smaller images have fewer stages. (default: 20)"
        in shown("--preset", "large")
    )
    assert "Defaults in this help are those of the recipe" in shown()
