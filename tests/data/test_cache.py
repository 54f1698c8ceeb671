"""Prepared files: reading returns exactly what was written, or raises a clear error."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from lotnet.data import Split, cache
from lotnet.data.stored import StoredImages
from lotnet.errors import InputError


@pytest.fixture
def stored(dataset, tmp_path):
    path = tmp_path / "sub" / "toy.safetensors"
    cache.write(dataset, path, "here")
    return path


def test_round_trip(dataset, stored):
    back = cache.read(stored)
    assert (back.name, back.classes) == (dataset.name, dataset.classes)
    for one, other in ((dataset.train, back.train), (dataset.test, back.test)):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)
    assert cache.origin(stored) == "here"
    assert [entry.name for entry in stored.parent.iterdir()] == [stored.name]  # no partial file remains


@pytest.mark.parametrize("where", [0.0, 0.001, 0.3, 0.6, 0.999], ids=str)
def test_every_flipped_byte_is_noticed(stored, where):
    data = bytearray(stored.read_bytes())
    data[int(where * len(data))] ^= 1
    stored.write_bytes(data)
    with pytest.raises(InputError, match=r"delete it and prepare the data set again"):
        cache.read(stored)


@pytest.mark.parametrize("kept", [0, 5, 200, 0.5, 0.999], ids=str)
def test_truncation_is_noticed(stored, kept):
    data = stored.read_bytes()
    stored.write_bytes(data[: kept if isinstance(kept, int) else int(kept * len(data))])
    with pytest.raises(InputError, match="damaged"):
        cache.read(stored)


def _with_header(path, **changes):
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["lotnet.data"])
    save_file(load_file(path), path, metadata={"lotnet.data": json.dumps(about | changes)})


def test_changed_class_names_are_noticed(stored):
    _with_header(stored, classes=["a", "c", "b", "d"])
    with pytest.raises(InputError, match="damaged"):
        cache.read(stored)


def test_images_may_stay_in_the_file(dataset, stored):
    back = cache.read(stored, in_file=True)
    for one, other in ((dataset.train, back.train), (dataset.test, back.test)):
        assert isinstance(other.pixels, StoredImages)
        assert torch.equal(one.images, other.images)
        assert torch.equal(torch.cat(list(other.chunks())), one.images)
        mask = one.labels == 1
        assert torch.equal(other.select(mask).images, one.images[mask])
        few = torch.tensor([1, 0, 1])
        assert torch.equal(other.select(mask).read(few), one.images[mask][few])
        assert torch.equal(other.select(mask).image(1), one.images[mask][1])
        assert torch.equal(other.select(mask).select(few).labels, one.labels[mask][few])
    assert (back.mean, back.std) == (dataset.mean, dataset.std)


def test_scattered_images_are_read_through_several_maps(dataset, stored, monkeypatch):
    """All pages that were read through a map count as memory in use until it is dropped."""
    split, rows, maps, memmap = cache.read(stored, in_file=True).train, torch.tensor([3, 0, 2]), [], np.memmap
    monkeypatch.setattr("lotnet.data.stored._PART", 1)
    monkeypatch.setattr(np, "memmap", lambda *args: maps.append(args) or memmap(*args))
    assert torch.equal(split.read(rows), dataset.train.images[rows])
    assert len(maps) == len(rows)


def test_files_of_safetensors_itself_are_read_too(dataset, stored):
    """Earlier versions wrote them so: with the labels first."""
    with safe_open(stored, framework="pt") as file:
        metadata = file.metadata()
    save_file(load_file(stored), stored, metadata=metadata)
    back = cache.read(stored)
    assert torch.equal(back.train.images, dataset.train.images)
    assert torch.equal(back.test.labels, dataset.test.labels)


def test_another_version_is_named(stored):
    _with_header(stored, version=99)
    with pytest.raises(InputError, match="has format 99, not 1: delete it"):
        cache.read(stored)
    assert cache.origin(stored) is None


def test_a_file_that_cannot_be_read_is_not_called_damaged(stored, monkeypatch):
    """Its content may be intact, so nobody should delete it."""

    def broken(*arguments, **settings):
        raise OSError(5, "Input/output error")

    for place in (lambda: monkeypatch.setattr(np, "memmap", broken), lambda: stored.unlink() or stored.mkdir()):
        place()
        with pytest.raises(InputError, match=r"cannot read .*toy\.safetensors \(.*\): check its permissions") as caught:
            cache.read(stored)
        assert "damaged" not in str(caught.value) and "delete" not in str(caught.value)


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(InputError, match="damaged"):
        cache.read(path)


def test_failed_write_keeps_the_old_file(dataset, stored, monkeypatch):
    def full(split):
        yield split.read(slice(2))
        raise OSError(28, "No space left on device")

    before = stored.read_bytes()
    monkeypatch.setattr(Split, "chunks", full)
    with pytest.raises(InputError, match=r"No space left|make room"):
        cache.write(dataset, stored, "again")
    assert stored.read_bytes() == before
    assert len(list(stored.parent.iterdir())) == 1


def test_root_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("LOTNET_DATA", raising=False)
    assert cache.root_folder().parts[-2:] == (".cache", "lotnet")
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path))
    assert cache.root_folder() == tmp_path
    assert cache.root_folder(tmp_path / "other") == tmp_path / "other"
