"""Frozen copies of shipped models in the user's cache."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lotnet
from lotnet.frozen.convolution import FrozenDense, FrozenKernel, FrozenSpectrum
from lotnet.models import ImageSpec, LipConvnet
from lotnet.pretrained import cache, packed

IMAGES = ImageSpec(1, 8, 8, 10, (0.5,), 0.25)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of shipped models that holds one model, `tiny`, and an empty cache beside it."""
    config = LipConvnet(depth=5, channels=4, start="random")
    torch.manual_seed(0)
    classes = tuple("0123456789")
    packed.pack(config.build(IMAGES), config, IMAGES, classes, "digits").write(tmp_path / "shelf" / "tiny")
    monkeypatch.setattr("lotnet.pretrained.FOLDER", tmp_path / "shelf")
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path / "cache"))
    return tmp_path / "shelf"


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list with one entry for each time that a model was frozen."""
    seen: list[str] = []
    unpack = packed.Packed.unpack
    monkeypatch.setattr(packed.Packed, "unpack", lambda model: (seen.append(model.data), unpack(model))[1])
    return seen


def copies(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "models").iterdir())


def test_a_shipped_model_is_frozen_once(shelf: Path, unpacked: list[str], tmp_path: Path) -> None:
    first, second = lotnet.load("tiny"), lotnet.load("tiny")
    assert unpacked == ["digits"]
    assert first.settings == second.settings and first.checksum() == second.checksum()
    assert [folder.name.rsplit("-", 1)[0] for folder in copies(tmp_path)] == ["tiny"]
    images = torch.rand(3, 1, 8, 8)
    assert torch.equal(first(images), second(images))


@pytest.mark.parametrize("file", ("model.safetensors", "config.json"))
def test_a_damaged_copy_is_replaced(shelf: Path, unpacked: list[str], tmp_path: Path, file: str) -> None:
    expected = lotnet.load("tiny").checksum()
    (copy,) = copies(tmp_path)
    intact = (copy / file).read_bytes()
    for damaged in (intact[: len(intact) // 2], intact[:-9] + b"!" + intact[-8:], b""):
        (copy / file).write_bytes(damaged)
        unpacked.clear()
        assert lotnet.load("tiny").checksum() == expected
        assert unpacked == ["digits"]
        assert (copy / file).read_bytes() == intact


def test_files_of_two_processes_that_froze_different_bits_are_not_mixed(
    shelf: Path, unpacked: list[str], tmp_path: Path
) -> None:
    """One process wrote the tensors and the other the settings, and their last bits differ."""
    model = lotnet.load("tiny")
    (copy,) = copies(tmp_path)
    settings = (copy / "config.json").read_bytes()
    with torch.no_grad():
        next(model.buffers()).mul_(1 + 2.0**-20)
    model.settings["checksum"] = model.checksum()
    model.save(copy)
    (copy / "config.json").write_bytes(settings)
    lotnet.load("tiny")
    assert len(unpacked) == 2


def test_another_packed_model_of_the_same_name_has_a_copy_of_its_own(shelf: Path, tmp_path: Path) -> None:
    before = lotnet.load("tiny").checksum()
    model = packed.read(shelf / "tiny")
    other = {name: tensor.flip(0) for name, tensor in model.tensors.items()}
    packed.Packed(model.model, IMAGES, model.classes, "digits", other, None).write(shelf / "tiny")
    assert lotnet.load("tiny").checksum() != before
    assert len(copies(tmp_path)) == 2


def test_the_three_newest_copies_of_a_model_stay(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "cache" / "models" / f"tiny-two-{16 * 'a'}"
    other.mkdir(parents=True)
    versions = [16 * digit for digit in "1234"]
    for age, version in enumerate(versions):
        monkeypatch.setattr(cache, "_version", lambda folder, version=version: version)
        lotnet.load("tiny")
        os.utime(other.with_name(f"tiny-{version}"), (age, age))
    assert {folder.name for folder in copies(tmp_path)} == {
        other.name,
        *(f"tiny-{version}" for version in versions[1:]),
    }


def test_an_unusable_cache_is_no_error(shelf: Path, unpacked: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert lotnet.load("tiny").checksum() == lotnet.load("tiny").checksum()
    assert len(unpacked) == 2


def test_processes_that_start_together_load_the_same_model(shelf: Path) -> None:
    code = f"""
import pathlib, torch, lotnet, lotnet.pretrained
torch.set_num_threads(1)
lotnet.pretrained.FOLDER = pathlib.Path({str(shelf)!r})
print(lotnet.load("tiny").checksum())
"""
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
    printed = [process.communicate(timeout=100)[0] for process in started]
    assert printed[0] == printed[1] != b""


@pytest.fixture
def proved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list with one entry for each matrix that was proved."""
    seen: list[str] = []
    for form in (FrozenDense, FrozenKernel, FrozenSpectrum):
        prove = form._prove_lipschitz
        monkeypatch.setattr(
            form, "_prove_lipschitz", lambda m, p=prove, name=form.__name__: (seen.append(name), p(m))[1]
        )
    return seen


def test_proofs_are_made_once(shelf: Path, proved: list[str]) -> None:
    images = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    first = lotnet.certify(lotnet.load("tiny"), images)
    assert proved
    proved.clear()
    second = lotnet.certify(lotnet.load("tiny"), images)
    assert proved == []
    assert first.lipschitz_bound == second.lipschitz_bound >= 1
    assert torch.equal(first.radii["float"], second.radii["float"])


def test_damaged_or_foreign_proofs_are_made_again(shelf: Path, proved: list[str], tmp_path: Path) -> None:
    expected = lotnet.load("tiny").astype(torch.float64).proofs()
    (copy,) = copies(tmp_path)
    intact = (copy / "proofs.json").read_text()
    other = json.loads(intact)
    other["checksum"] = "0" * 64
    other.pop("digest")
    smaller = json.loads(intact)
    smaller["bounds"] = dict.fromkeys(smaller["bounds"], (0.5).hex())
    foreign = {**other, "digest": cache._digest(other)}
    huge = intact.replace("0x1", "0x1p99999", 1)
    texts = (intact[: len(intact) // 2], "", "[]", "[" * 10**5, '{"digest": 1}', huge)
    for text in (*texts, json.dumps(smaller), json.dumps(foreign)):
        (copy / "proofs.json").write_text(text)
        proved.clear()
        assert lotnet.load("tiny").astype(torch.float64).proofs() == expected
        assert proved, text
        assert (copy / "proofs.json").read_text() == intact


def test_stored_proofs_do_not_outlive_a_change_of_the_tensors(shelf: Path, proved: list[str]) -> None:
    lotnet.load("tiny")
    model = lotnet.load("tiny")
    proved.clear()
    before = model.astype(torch.float64).lipschitz_bound()
    assert proved == []
    with torch.no_grad():
        for tensor in model.buffers():
            tensor.mul_(2)
    assert model.astype(torch.float64).lipschitz_bound() > 2 * before
    unseen = lotnet.load("tiny")
    for tensor in unseen.buffers():
        tensor.data.mul_(2)  # raises no version
    assert unseen.astype(torch.float64).lipschitz_bound() > 2 * before
    again = lotnet.load("tiny").astype(torch.float64)
    with torch.no_grad():
        for tensor in again.buffers():
            tensor.mul_(2)
    assert again.lipschitz_bound() > 2 * before
    replaced = lotnet.load("tiny")
    for module in replaced.modules():
        for name, tensor in list(module.named_buffers(recurse=False)):
            setattr(module, name, 2 * tensor)
    assert replaced.astype(torch.float64).lipschitz_bound() > 2 * before
