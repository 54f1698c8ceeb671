"""Files that were made to start a program, to fill the memory or to hang: each is refused in one sentence."""

import ast
import contextlib
import gzip
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

import lotnet
from lotnet.cli.main import main
from lotnet.config.yaml_text import load_yaml, read_yaml
from lotnet.data import archive, decode
from lotnet.data.formats import FORMATS
from lotnet.data.unpickle import load_arrays
from lotnet.errors import InputError
from lotnet.prediction import read_picture
from lotnet.records import parse_json

SOURCE = Path(lotnet.__file__).parent


@pytest.fixture
def postscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An EPS file named .png, in a folder of two classes."""

    def started(*_: object, **__: object) -> None:
        pytest.fail("Ghostscript was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", started)
    for name in ("a", "b"):
        for split in ("train", "test"):
            (tmp_path / split / name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / split / name / "1.png", "PNG")
    path = tmp_path / "train" / "a" / "photo.png"
    Image.new("RGB", (8, 8)).save(path, "EPS")
    return path


def test_no_picture_starts_another_program(postscript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = postscript.parents[2]
    for read in (lambda: decode(postscript, (3, 8, 8)), lambda: read_picture(postscript, (3, 8, 8), "it")):
        with pytest.raises(InputError, match="does not decode"):
            read()
    with pytest.raises(InputError, match=r"photo\.png does not decode"):
        lotnet.data.load(f"folder:{root}", root / "cache", 8)
    assert main(["predict", "lipconvnet5-cifar10", str(postscript)]) == 2
    assert "photo.png does not decode" in capsys.readouterr().err


@pytest.mark.parametrize("name", ("PCX", "TGA", "ICNS", "PDF", "EPS", "SGI", "DDS"))
def test_a_format_that_is_not_meant_is_refused(name: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16)).save(buffer, name)
    (tmp_path / "photo.png").write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match=r"lotnet reads PNG, JPEG"):
        decode(tmp_path / "photo.png", (3, 8, 8))


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_of_the_list_is_read(name: str, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (200, 0, 0)).save(tmp_path / "photo", name)
    assert abs(int(decode(tmp_path / "photo", (3, 8, 8))[0].float().mean()) - 200) <= 3


def test_images_are_opened_in_one_place() -> None:
    """A call of `Image.open` elsewhere would accept every format that Pillow knows."""
    found = [
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "Image.open"
    ]
    assert found == ["data/formats.py"]


# YAML and JSON.


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_aliases_of_aliases_are_refused() -> None:
    for levels in (3, 5, 10):
        with pytest.raises(InputError, match="is not valid YAML near line 3: write"):
            read_yaml(bomb(levels), "config.yaml")
    assert load_yaml("a: &a {lr: 1}\nb: *a\nc: {<<: *a, x: 2}")["c"] == {"lr": 1, "x": 2}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100,
        "{a: " * 100,
        "- " * 100 + "x",
        "[" * 100 + "]" * 100,
        "a: " + "1" * 5000,
        "? [a, b]\n: c",
        "2026-13-45: x",
    ],
)
def test_other_hostile_yaml_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"config\.yaml (is not valid YAML|holds no settings)"):
        read_yaml(text, "config.yaml")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 5000, "nul", ""])
def test_hostile_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


# Pickles.


def nested_tuple(levels: int) -> bytes:
    """A tuple of the same tuple twice, and so on: its hash and its text take time and space of 2^levels."""
    return pickle.EMPTY_TUPLE + (pickle.DUP + pickle.TUPLE2) * levels


def test_a_nested_tuple_is_neither_hashed_nor_printed() -> None:
    key = pickle.EMPTY_DICT + nested_tuple(22) + pickle.NONE + pickle.SETITEM + pickle.STOP
    with pytest.raises(InputError, match="a key that is a container"):
        load_arrays(io.BytesIO(key), "batch")
    name = b"cnumpy\ndtype\n" + nested_tuple(18) + pickle.TUPLE1 + pickle.REDUCE + pickle.STOP
    with pytest.raises(InputError, match="not a readable pickle") as refused:
        load_arrays(io.BytesIO(name), "batch")
    assert "number type" in str(refused.value.__cause__)


@pytest.mark.parametrize(
    "program",
    [
        pickle.NONE + pickle.LONG_BINPUT + b"\xff\xff\xff\x7f" + pickle.STOP,
        pickle.BINUNICODE8 + b"\xff" * 7 + b"\x7f",
        pickle.BYTEARRAY8 + b"\xff" * 7 + b"\x7f",
        pickle.LONG4 + b"\xff\xff\xff\x7f",
        pickle.FRAME + b"\xff" * 7 + b"\x7f" + pickle.NONE + pickle.STOP,
    ],
)
def test_a_dozen_bytes_allocate_no_more(program: bytes) -> None:
    """A size that an instruction claims is compared with the file, and the memo is no array."""
    with contextlib.suppress(InputError):
        assert load_arrays(io.BytesIO(program), "batch") is None


# Archives.


def tar(path: Path, *members: tuple[str, int]) -> Path:
    with tarfile.open(path, "w:gz") as target:
        for name, size in members:
            info = tarfile.TarInfo(name)
            info.size = size
            target.addfile(info, io.BytesIO(bytes(size)))
    return path


def test_a_small_archive_does_not_unpack_without_end(tmp_path: Path) -> None:
    for members in ([("unwanted", 2**26)], [("wanted", 2**26)]):
        path = tar(tmp_path / "bomb.tar.gz", *members)
        assert path.stat().st_size < 2**17
        with pytest.raises(InputError, match="unpacks to far more than its size"):
            archive.files(path, {"wanted"})
    honest = tar(tmp_path / "honest.tar.gz", ("unwanted", 1000), ("below/wanted", 2000))
    assert archive.files(honest, {"wanted"}) == {"wanted": bytes(2000)}


def test_headers_that_claim_much_are_refused(tmp_path: Path) -> None:
    """A name of 64 MB, which tarfile would read into memory, and more members than any data set has."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**26
    (tmp_path / "name.tar.gz").write_bytes(gzip.compress(header.tobuf() + bytes(2**26 + 1024)))
    with pytest.raises(InputError, match="unpacks to far more"):
        archive.files(tmp_path / "name.tar.gz", {"wanted"})
    noise = [(np.random.default_rng(n).bytes(20).hex(), 0) for n in range(archive.MAX_MEMBERS + 1)]
    with pytest.raises(InputError, match="more than 10000 members"):
        archive.files(tar(tmp_path / "many.tar.gz", *noise), {"wanted"})


def test_a_sparse_member_is_not_read(tmp_path: Path) -> None:
    """It claims zeros that the archive does not contain."""
    header = tarfile.TarInfo("wanted")
    header.type, header.size = tarfile.GNUTYPE_SPARSE, 0
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[483:495] = b"%011o\0" % 2**27  # the real size
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 256 + sum(block[156:]))
    (tmp_path / "sparse.tar").write_bytes(bytes(block) + bytes(1024))
    assert archive.files(tmp_path / "sparse.tar", {"wanted"}) == {}


def test_compressions_that_no_official_archive_has_are_refused(tmp_path: Path) -> None:
    for mode in ("w:xz", "w:bz2"):
        with tarfile.open(tmp_path / "x.tar", mode) as target:
            target.addfile(tarfile.TarInfo("wanted"))
        with pytest.raises(InputError, match=r"not a whole tar archive \(\.tar or \.tar\.gz\)"):
            archive.files(tmp_path / "x.tar", {"wanted"})
