"""`lotnet export`: the file runs without lotnet and gives the model's answers."""

import copy
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

import lotnet.export
from lotnet import FrozenModel, freeze
from lotnet.certification import certify
from lotnet.certification.rounding import bounds
from lotnet.cli.main import main
from lotnet.data import load, to_unit
from lotnet.errors import InputError
from lotnet.export import DeployedModel, Format, Precision, export
from lotnet.models.base import ImageSpec
from lotnet.models.lipconvnet import LipConvnet
from lotnet.models.lipwidenet import LipWideNet
from lotnet.models.resnet import LipResNet18
from lotnet.prediction import predict

IMAGES = ImageSpec(1, 8, 8, 10, (0.3,), 0.37)


@pytest.fixture(scope="module")
def images() -> Tensor:
    return to_unit(load("digits").test.images[:20], torch.float64)


def session(path: Path):
    return pytest.importorskip("onnxruntime").InferenceSession(path)


def test_onnx_gives_the_same_answers_as_predict(folder: Path, tmp_path: Path, capsys) -> None:
    pytest.importorskip("onnxscript")
    pixels = load("digits").test.images[:3]
    files = [str(tmp_path / f"{n}.png") for n in range(3)]
    for file, image in zip(files, pixels, strict=True):
        Image.fromarray(image[0].numpy()).save(file)
    assert main(["predict", str(folder), *files, "--json", "--device", "cpu"]) == 0
    answers = json.loads(capsys.readouterr().out)["images"]
    assert main(["export", str(folder), "--to", "onnx", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["checked_images"] == 100 and about["labels_as_predict"] == 50 and about["difference"] <= 1e-4
    assert Path(about["written"]) == folder / "model.onnx"
    deployed = session(folder / "model.onnx")
    read, model = to_unit(pixels, torch.float32), FrozenModel.load(folder)
    logits, radii = deployed.run(["logits", "plain_radius"], {"images": read.numpy()})
    for answer, own, radius in zip(answers, logits, radii, strict=True):
        assert answer["index"] == int(own.argmax())
        assert list(answer["logits"].values()) == pytest.approx(own.tolist(), abs=1e-4)
        assert answer["radius"] == pytest.approx(float(radius), abs=1e-4)
    assert radii.tolist() == pytest.approx(certify(model, read).radii["plain"].tolist(), abs=1e-4)
    assert deployed.get_inputs()[0].shape == ["batch", 1, 8, 8]
    metadata = deployed.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"])[3] == "[digit 3]"
    assert metadata["claim"].startswith("none: ") and metadata["input_range"] == "[0, 1]"
    assert float(metadata["lipschitz_bound"]) == bounds(model.astype(torch.float64)).lipschitz


def test_double_onnx_carries_claim_a(model: FrozenModel, images: Tensor, tmp_path: Path) -> None:
    """The radius is that of claim A up to the rounding of the logits, which is far below the error it subtracts."""
    pytest.importorskip("onnxscript")
    done = export(model, tmp_path / "double.onnx", "onnx", "float64", images)
    assert done.metadata["claim"].startswith("A: ")
    strange = images[:3].clone()
    strange[0, 0, 0, 0], strange[1, 0, 0, 0], strange[2, 0, 0, 0] = torch.nan, 1.5, -0.1
    deployed = session(tmp_path / "double.onnx")
    _, radii = deployed.run(None, {"images": torch.cat((images, strange)).numpy()})
    real = certify(model, images).radii["real"]
    known = bounds(model.astype(torch.float64))
    subtracted = known.feature_error / known.lipschitz
    assert float((torch.from_numpy(radii[:-3]) - real).abs().max()) < subtracted / 100
    assert radii[-3:].tolist() == [0, 0, 0]
    assert radii[:-3].tolist() == pytest.approx([p.radius for p in predict(model, images)], abs=1e-4)


def test_the_check_finds_a_graph_that_lost_its_rounding(model: FrozenModel, tmp_path: Path, monkeypatch) -> None:
    """If conversion rounds a constant of 1e-11 to zero or optimises it away, the file must not be written."""

    def careless(program, metadata, radius):
        known = bounds(model.astype(torch.float64))
        module = program.module()

        def run(batch: Tensor) -> tuple[Tensor, Tensor]:
            logits, radii = module(batch)
            return logits, radii + known.feature_error / known.lipschitz

        return b"", run

    monkeypatch.setitem(lotnet.export._WRITERS, "torch", careless)
    with pytest.raises(InputError, match="was not written"):
        export(model, tmp_path / "model.pt2", "torch", "float64")
    assert list(tmp_path.iterdir()) == []


def test_an_exporter_that_fails_gives_a_one_sentence_error(folder: Path, monkeypatch, capsys) -> None:
    def failing(*_: object, **__: object) -> None:
        raise RuntimeError("unsupported operator\nand forty lines of advice")

    monkeypatch.setattr(torch.export, "export", failing)
    assert main(["export", str(folder), "--to", "torch"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot export this model (unsupported operator): try --to onnx" in said
    assert not (folder / "model.pt2").exists()


def test_the_torch_archive_loads_without_lotnet(folder: Path, images: Tensor, capsys) -> None:
    assert main(["export", str(folder), "--to", "torch"]) == 0
    printed = capsys.readouterr().out
    assert "model.pt2" in printed and "Claim none: " in printed
    program = (
        "import sys, json; sys.modules['lotnet'] = None\n"
        "import torch\n"
        "extra = {'metadata.json': ''}\n"
        f"model = torch.export.load({str(folder / 'model.pt2')!r}, extra_files=extra).module()\n"
        f"images = torch.tensor({images[:3].tolist()})\n"
        "logits, radii = model(images)\n"
        "print(json.dumps([logits.argmax(1).tolist(), radii.tolist(), json.loads(extra['metadata.json'])['classes']]))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    labels, radii, classes = json.loads(result.stdout)
    certificates = certify(FrozenModel.load(folder), images[:3])
    assert labels == certificates.predictions.tolist()
    assert radii == pytest.approx(certificates.radii["plain"].tolist(), abs=1e-4)
    assert "[digit 9]" in classes


@pytest.mark.parametrize("to", ["torch", "onnx"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_no_local_path_is_in_the_file(model: FrozenModel, tmp_path: Path, to: Format, precision: Precision) -> None:
    """PyTorch stores stack traces with the paths of source files, and a data set of your own has a path."""
    if to == "onnx":
        pytest.importorskip("onnxscript")
    data, run = tmp_path / "images", tmp_path / "run"
    run.mkdir()
    private = copy.copy(model)
    private.name_classes(model.spec.classes, f"folder:{data}")
    path = export(private, run / "model", to, precision).path
    parts = [path.read_bytes()]
    if to == "torch":
        with zipfile.ZipFile(path) as archive:
            parts += [archive.read(name) for name in archive.namelist()]
    for place in (Path(lotnet.export.__file__).parent, Path(torch.__file__).parent, Path.home(), run, data, tmp_path):
        assert not any(str(place).encode() in part for part in parts), place
    assert not any(b".py" in part or b"File " in part for part in parts)


def test_the_exported_module_computes_the_frozen_model(images: Tensor) -> None:
    """This includes average pools and residuals, and leaves the frozen model unchanged."""
    torch.manual_seed(0)
    wide = LipWideNet(depth=1, channels=4, dense_layers=1, dense_width=16)
    for built in (LipResNet18(channels=2, start="random"), LipConvnet(channels=4, parametrization="soc"), wide):
        model = freeze(built.build(IMAGES), (1, 8, 8), torch.float64)
        logits, radii = DeployedModel(model, "float64")(images)
        assert model.is_intact()
        assert torch.allclose(logits, model(images), rtol=0, atol=1e-13)
        assert torch.allclose(radii, certify(model, images).radii["real"], rtol=0, atol=1e-13)


def test_bad_input_gives_a_one_sentence_error(
    model: FrozenModel, folder: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    def sentence(*arguments: str) -> str:
        assert main(["export", *arguments]) == 2
        said = capsys.readouterr().err
        assert said.startswith("lotnet") and said.count("\n") == 1
        return said

    assert "lotnet train" in sentence(str(tmp_path))
    assert "onnx" in sentence(str(folder), "--to", "coreml")
    assert f"is a folder: name a file in it, as in --out {tmp_path / 'model.pt2'}" in sentence(
        str(folder), "--to", "torch", "--out", str(tmp_path)
    )
    with pytest.raises(InputError, match="choose one of onnx, torch"):
        export(model, tmp_path / "model", "coreml")
    with pytest.raises(InputError, match="choose one of float32, float64"):
        export(model, tmp_path / "model", "torch", "float16")
    with pytest.raises(InputError, match="resize them"):
        export(model, tmp_path / "model", "torch", images=torch.rand(2, 3, 8, 8))
    with pytest.raises(InputError, match="freeze it first"):
        export(torch.nn.Linear(1, 1), tmp_path / "model.onnx")
    changed = FrozenModel.load(folder)
    next(iter(changed.buffers())).add_(1)
    with pytest.raises(InputError, match="freeze it again"):
        export(changed, tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install onnx onnxscript onnxruntime" in sentence(
        str(folder), "--to", "onnx", "--out", str(tmp_path / "model.onnx")
    )
    assert list(tmp_path.iterdir()) == []


def test_labels_must_be_those_of_predict(folder: Path, images, tmp_path, monkeypatch) -> None:
    """The comparison with PyTorch alone would not notice that the exported graph is another one than predict's."""
    wrong = [replace(found, index=found.index + 1) for found in predict(FrozenModel.load(folder), images)]
    monkeypatch.setattr("lotnet.export.predict", lambda *_: wrong)
    with pytest.raises(InputError, match=r"was not written: its label of image \d+ is not that of `lotnet predict`"):
        export(FrozenModel.load(folder), tmp_path / "model.pt2", to="torch", images=images)
    assert list(tmp_path.iterdir()) == []


def test_pictures_can_be_named_to_check_the_file(folder: Path, images, tmp_path, capsys) -> None:
    picture, out = tmp_path / "one.png", tmp_path / "model.pt2"
    Image.fromarray(load("digits").test.images[0, 0].numpy()).save(picture)
    assert main(["export", str(folder), "--to", "torch", "--out", str(out), "--images", str(picture), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels_as_predict"] == 1
