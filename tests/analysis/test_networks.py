"""Networks for analyses: runs, packed models, and the models that come with lotnet."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch

from lotnet.analysis.networks import describe, load_networks
from lotnet.cli.main import main
from lotnet.errors import InputError
from lotnet.losses import EMMA
from lotnet.runs.directory import Run

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def packed(lot_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "model"
    assert main(["pack", str(lot_run), "--out", str(path)]) == 0
    return path


def test_a_packed_model_is_the_network_of_its_run_with_rounded_kernels(lot_run: Path, packed: Path) -> None:
    run, model = load_networks([str(lot_run), str(packed)], CPU)
    for name, tensor in model.model.state_dict().items():
        expected = run.model.state_dict()[name]
        assert torch.equal(tensor, expected.half().float() if name.endswith("weight") else expected)
    assert not model.model.training and model.shape == run.shape == (1, 8, 8)
    assert model.loss == run.loss and model.images == Run.open(lot_run).images()
    assert len(model.dataset().train) > len(run.dataset().train) == 100, "the limit is one of the run"
    assert (run.name, model.name) == (str(lot_run), str(packed)), "they differ in nothing else"


def test_a_shipped_model_can_be_analyzed_by_its_name() -> None:
    (network,) = load_networks(["lipconvnet5-cifar10"], CPU)
    assert network.name == "LipConvnet-5, LOT, EMMA loss, last-layer normalisation, CIFAR-10"
    assert network.folder == Path("runs/lipconvnet5-cifar10") and isinstance(network.loss, EMMA)


def test_names_side_by_side_say_what_differs(lot_run: Path, soc_run: Path) -> None:
    found = describe([str(lot_run), str(soc_run)])
    assert [about.name for about in found.values()] == ["LOT", "SOC, last-layer normalisation"]
    assert [about.method for about in found.values()] == ["lot", "soc"]
    assert {about.common for about in found.values()} == {"LipConvnet-5 with 4 channels, offset cross-entropy, digits"}
    with pytest.raises(InputError, match="is named twice"):
        describe([str(lot_run), str(lot_run)])


def test_a_frozen_model_without_settings_has_the_name_of_its_place(lot_run: Path, tmp_path: Path) -> None:
    assert describe([str(tmp_path)])[str(tmp_path)].name == str(tmp_path)
    with pytest.raises(InputError, match="holds no run"):
        load_networks([str(tmp_path)], CPU)


def test_a_packed_model_without_its_loss_is_refused(packed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    shutil.copytree(packed, folder)
    about = json.loads((folder / "packed.json").read_text())
    del about["trained"]["loss"]
    about["format"] = 1  # whose checksum is about the kernels only
    about["sha256"] = hashlib.sha256((folder / "kernels.safetensors").read_bytes()).hexdigest()
    (folder / "packed.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="with which loss it was trained: pack it again"):
        load_networks([str(folder)], CPU)
