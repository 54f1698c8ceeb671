"""Packed models, models that come with lotnet, and model cards."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import lotnet
from lotnet import FrozenModel, freeze
from lotnet.certification import certify
from lotnet.cli.main import main
from lotnet.data import load, to_unit
from lotnet.errors import InputError
from lotnet.models import ImageSpec, LipConvnet, LipResNet18, LipWideNet
from lotnet.pretrained import FOLDER, Source, packed, resolve, shipped_names
from lotnet.pretrained.card import CARD, packed_card
from lotnet.runs.directory import Run
from pages import MACHINE

LARGEST = 20e6  # bytes of a model that comes with lotnet


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "tiny"
    tiny = ["--model.channels=4", "--limit=200", "--trainer.epochs=1", "--trainer.batch_size=32"]
    assert main(["train", *tiny, "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def shelf(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of shipped models that holds one model, `tiny`."""
    path = tmp_path_factory.mktemp("shelf")
    assert main(["pack", str(run), "--out", str(path / "tiny"), "--limit", "40"]) == 0
    return path


@pytest.fixture
def shipped(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("lotnet.pretrained.FOLDER", shelf)
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return shelf


def test_kernels_are_stored_in_half_precision_and_nothing_else_is(run: Path, shelf: Path) -> None:
    stored, trained = packed.read(shelf / "tiny").tensors, Run.open(run).best_model().state_dict()
    assert stored.keys() == trained.keys()
    for name, tensor in stored.items():
        is_kernel = name.endswith("weight")
        assert tensor.dtype == (torch.float16 if is_kernel else torch.float32)
        assert torch.equal(tensor, trained[name].half() if is_kernel else trained[name])


def test_a_model_without_a_data_set_is_not_certified_on_another_one(tmp_path: Path, capsys) -> None:
    """Digits have the same shape, but nothing says that the model is about them."""
    network = torch.nn.Sequential(torch.nn.Flatten(), lotnet.OrthogonalLinear(64, 10))
    lotnet.save_pretrained(freeze(network, (1, 8, 8)), tmp_path / "mine")
    assert main(["certify", str(tmp_path / "mine"), "--limit", "5"]) == 2
    assert "does not say which data set the model is for" in capsys.readouterr().err
    model = lotnet.load(tmp_path / "mine")
    model.name_classes(list("0123456789"), data="digits")
    lotnet.save_pretrained(model, tmp_path / "mine")
    assert main(["certify", str(tmp_path / "mine"), "--limit", "5"]) == 0


def test_a_shipped_model_is_the_same_to_the_last_bit_every_time(shipped: Path) -> None:
    images = to_unit(load("digits").test.images[:5], torch.float64)
    before = torch.get_rng_state()
    first, second, third = lotnet.load("tiny"), lotnet.load("tiny"), lotnet.load(shipped / "tiny")
    assert torch.equal(torch.get_rng_state(), before)
    assert first.checksum() == second.checksum() == third.checksum()
    radii = [certify(model, images).radii["float"] for model in (first, second)]
    assert torch.equal(*radii) and radii[0].max() > 0
    lotnet.save_pretrained(first, "saved")
    assert torch.equal(certify(lotnet.load("saved"), images).radii["float"], radii[0])


def test_certifying_a_shipped_model_by_name_reproduces_its_row(shipped: Path, capsys) -> None:
    assert main(["certify", "tiny", "--limit", "40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    row = json.loads((shipped / "tiny" / "packed.json").read_text())["result"]
    assert row["images"] == 40
    assert row == {key: found["summary"][key] for key in row}
    assert Path("runs/tiny/certificates-test-40.json").is_file()  # in the working directory, not in the package
    kept = ["README.md", "kernels.safetensors", "packed.json"]
    assert sorted(file.name for file in (shipped / "tiny").iterdir()) == kept


def test_predict_needs_a_name_and_no_data(shipped: Path, monkeypatch, capsys) -> None:
    Image.fromarray(load("digits").test.images[0, 0].numpy()).save("digit.png")
    monkeypatch.setattr("lotnet.load_model.load", None)  # the loader of data sets
    assert main(["predict", "tiny", "digit.png", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["images"]
    assert answer["radius"] >= 0
    assert not Path("runs").exists()


def test_an_unknown_name_gives_a_one_sentence_error_with_the_names(shipped: Path, capsys) -> None:
    with pytest.raises(InputError, match=r"tinny is neither a run nor a model: did you mean tiny\?"):
        lotnet.load("tinny")
    assert main(["certify", "tinny"]) == 2
    said = capsys.readouterr().err
    assert said == "lotnet: tinny is neither a run nor a model: did you mean tiny?\n"
    assert main(["certify", "resnet"]) == 2
    assert capsys.readouterr().err.endswith("model: choose one of tiny, or train one with `lotnet train`\n")


def test_a_source_is_a_run_a_packed_model_a_frozen_model_or_a_shipped_one(shipped: Path, run: Path) -> None:
    assert resolve(run) == Source("run", run, run)
    assert resolve(str(shipped / "tiny")) == Source("packed", shipped / "tiny", shipped / "tiny")
    assert resolve("tiny") == Source("shipped", shipped / "tiny", Path("runs/tiny"))
    assert resolve("small") is None and resolve(shipped) is None
    lotnet.load("tiny").save("tiny")
    folder = Path("tiny")
    assert resolve("tiny") == Source("frozen", folder, folder), "a folder comes first"
    shutil.copytree(shipped / "tiny", "tiny", dirs_exist_ok=True)
    assert resolve("tiny") == Source("packed", folder, folder)
    with pytest.raises(InputError, match="is neither a run nor a model"):
        lotnet.load("small")


def test_a_packed_model_has_a_model_card(run: Path, shelf: Path) -> None:
    card, stored = (shelf / "tiny" / "README.md").read_text(), packed.read(shelf / "tiny")
    assert stored.result is not None
    row = next(line for line in card.splitlines() if line.startswith("| claim B"))
    assert [cell.strip() for cell in row.split("|")[2:-2]] == [f"{x:.2%}" for x in stored.result.certified["float"]]
    assert "40 of the 359 images of the test split of digits" in card and "Epochs: 1, in batches of 32; seed 0." in card
    assert json.loads((shelf / "tiny" / "packed.json").read_text())["sha256"] in card
    (block,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert 'lotnet.load("tiny")' in block


def test_models_that_come_with_lotnet() -> None:
    """They are small, complete, certified on all test images, and contain no local paths."""
    assert "lipconvnet5-cifar10" in shipped_names()
    for name in shipped_names():
        assert sum(file.stat().st_size for file in (FOLDER / name).iterdir()) <= LARGEST
        stored = packed.read(FOLDER / name)
        assert stored.result is not None and stored.result.images >= 1000
        assert len(stored.classes) == stored.images.classes
        settings = (FOLDER / name / packed.SETTINGS).read_text()
        assert not MACHINE.search(settings)
        sha256 = json.loads(settings)["sha256"]
        assert (FOLDER / name / CARD).read_text() == packed_card(name, stored, sha256)


@pytest.mark.parametrize(
    "config",
    [
        LipResNet18(channels=2),
        LipConvnet(channels=4, parametrization="soc", head="lln"),
        LipWideNet(depth=1, channels=4, dense_layers=1, dense_width=16),
    ],
    ids=lambda config: type(config).__name__,
)
def test_every_architecture_can_be_packed(config, tmp_path: Path) -> None:
    torch.manual_seed(0)
    images = ImageSpec(1, 8, 8, 3, (0.3,), 0.37)
    network = config.build(images).eval()
    packed.pack(network, config, images, ("a", "b", "c"), "digits").write(tmp_path)
    model = lotnet.load(tmp_path)
    batch = torch.rand(2, 1, 8, 8)
    assert torch.allclose(model(batch), freeze(network, 8)(batch), atol=0.02)
    assert model.spec.classes == ("a", "b", "c")


def test_damaged_or_too_new_models_are_refused(shelf: Path, tmp_path: Path) -> None:
    def copy(name: str, content: bytes) -> Path:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for file in (shelf / "tiny").iterdir():
            (folder / file.name).write_bytes(content if file.name == name else file.read_bytes())
        return folder

    settings = json.loads((shelf / "tiny" / "packed.json").read_text())
    kernels = bytearray((shelf / "tiny" / "kernels.safetensors").read_bytes())
    kernels[-1] ^= 1
    damaged = {
        "kernels.safetensors": [bytes(kernels), b""],
        "packed.json": [b"{", b"[]", *(json.dumps(settings | change).encode() for change in _CHANGES)],
    }
    for name, contents in damaged.items():
        for content in contents:
            with pytest.raises(InputError, match="damaged"):
                lotnet.load(copy(name, content))
    with pytest.raises(InputError, match="has format 99"):
        lotnet.load(copy("packed.json", json.dumps(settings | {"format": 99}).encode()))
    with pytest.raises(InputError, match="holds neither a run nor a model"):
        lotnet.load(tmp_path)
    halved = copy("packed.json", (shelf / "tiny" / "packed.json").read_bytes())
    (halved / "kernels.safetensors").unlink()
    with pytest.raises(InputError, match="lotnet pack RUN --out"):
        lotnet.load(halved)


def test_every_setting_is_inside_the_checksum(shelf: Path, tmp_path: Path) -> None:
    """A forged name of a class or data set, or a forged accuracy on the card, is noticed."""
    settings = json.loads((shelf / "tiny" / "packed.json").read_text())
    for key in settings.keys() - {"sha256", "format"}:
        with pytest.raises(InputError, match="damaged"):
            lotnet.load(forged(shelf / "tiny", tmp_path / key, {**settings, key: changed(settings[key])}))


def changed(value: Any) -> Any:
    if isinstance(value, int):
        return value + 1
    return value + "x" if isinstance(value, str) else value[::-1] if isinstance(value, list) else {**value, "x": 1}


def forged(source: Path, folder: Path, settings: dict[str, Any], sign: bool = False) -> Path:
    """A copy with other settings; `sign` computes the checksum anew, as a forger would."""
    folder.mkdir()
    kernels = (source / "kernels.safetensors").read_bytes()
    if sign:
        rest = json.dumps({k: v for k, v in settings.items() if k != "sha256"}, sort_keys=True).encode()
        settings = settings | {"sha256": hashlib.sha256(kernels + rest).hexdigest()}
    (folder / "kernels.safetensors").write_bytes(kernels)
    (folder / "packed.json").write_text(json.dumps(settings))
    return folder


def test_a_packed_model_of_format_1_still_opens(shelf: Path, tmp_path: Path) -> None:
    settings = json.loads((shelf / "tiny" / "packed.json").read_text())
    sha256 = hashlib.sha256((shelf / "tiny" / "kernels.safetensors").read_bytes()).hexdigest()
    old = forged(shelf / "tiny", tmp_path / "old", settings | {"format": 1, "sha256": sha256})
    assert lotnet.load(old).checksum() == lotnet.load(shelf / "tiny").checksum()


@pytest.mark.parametrize(
    ("group", "change"),
    [
        ("model", {"depth": 10**9 * 5}),
        ("model", {"channels": 4096}),
        ("model", {"channels": "4"}),
        ("model", {"residual": 1}),
        ("model", {"mix": "half"}),
        ("images", {"height": 10**6}),
        ("images", {"height": 0}),
        ("images", {"classes": 3}),
        ("images", {"mean": [0.5, 0.5]}),
        ("images", {"std": "0.2"}),
    ],
)
def test_signed_settings_that_do_not_fit_the_kernels_are_refused(
    group: str, change: dict[str, Any], shelf: Path, tmp_path: Path
) -> None:
    """Before a network is built: nothing is allocated for it."""
    settings = json.loads((shelf / "tiny" / "packed.json").read_text())
    settings[group] |= change
    with pytest.raises(InputError, match="damaged"):
        lotnet.load(forged(shelf / "tiny", tmp_path / "signed", settings, sign=True))


_CHANGES = [{"model": {"kind": "vgg"}}, {"model": {}}, {"images": None}, {"classes": 3}, {"sha256": ""}]


def test_kernels_that_float16_cannot_hold_are_refused() -> None:
    config, images = LipConvnet(channels=4), ImageSpec(1, 8, 8, 3, (0.3,), 0.37)
    network = config.build(images)
    with torch.no_grad():
        next(p for name, p in network.named_parameters() if name.endswith("weight")).fill_(1e6)
    with pytest.raises(InputError, match="beyond 65504"):
        packed.pack(network, config, images, ("a", "b", "c"), "digits")


def test_pack_overwrites_only_a_packed_model(run: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for out in (tmp_path, tmp_path / "thesis.tex"):
        assert main(["pack", str(run), "--out", str(out), "--limit", "5"]) == 2
        assert "is not a packed model: choose another --out" in capsys.readouterr().err
    assert main(["pack", str(run), "--out", str(tmp_path / "thesis.tex" / "small"), "--limit", "5"]) == 2
    assert "cannot make the folder" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_certify_writes_the_card_of_a_run(run: Path, capsys) -> None:
    assert main(["certify", str(run), "--limit", "30"]) == 0
    card = (run / "model" / "README.md").read_text()
    summary = json.loads((run / "certificates-test-30.json").read_text())["summary"]
    assert "\n# tiny\n" in card  # the run's name
    assert card.startswith("---\nlibrary_name: lotnet\n") and "\ndatasets:\n- digits\n" in card
    assert "30 of the 359 images of the test split of digits" in card
    row = next(line for line in card.splitlines() if line.startswith("| claim B"))
    assert [cell.strip() for cell in row.split("|")[2:-1]] == [
        *(f"{share:.2%}" for share in summary["certified"]["float"]),
        f"{summary['mean_radius']['float']:.4f}",
    ]
    assert "at 36/255" in card and FrozenModel.load(run / "model").checksum() in card
    # The card's loading example works.
    (block,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    space: dict = {}
    exec(block.replace('"tiny"', repr(str(run / "model"))), space)
    assert space["model"].spec.classes == tuple("0123456789")


def test_a_card_without_certificates_claims_nothing(model: FrozenModel, folder: Path, run: Path) -> None:
    lotnet.save_pretrained(model, folder)
    assert "without certificates" in (folder / "README.md").read_text()
    main(["certify", str(run), "--limit", "5"])
    with pytest.raises(InputError, match="of another model"):
        lotnet.save_pretrained(model, folder, run / "certificates-test-5.json")
    with pytest.raises(InputError, match=r"config\.yaml is damaged"):
        lotnet.save_pretrained(model, folder, run / "config.yaml")


def test_a_model_that_cannot_be_saved_gives_a_one_sentence_error_and_no_file(
    model: FrozenModel, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="freeze it first"):
        lotnet.save_pretrained(torch.nn.Linear(1, 1), tmp_path / "saved")
    with pytest.raises(InputError, match="a dict holds no certificates"):
        lotnet.save_pretrained(model, tmp_path / "saved", {"checksum": model.spec.checksum})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="choose another"):
            lotnet.save_pretrained(model, folder)
