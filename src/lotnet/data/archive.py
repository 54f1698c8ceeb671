"""Read a few named files from a folder or a tar archive into memory. Nothing is unpacked to disk."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from lotnet.errors import InputError

MAX_BYTES = 256 * 2**20
"""Largest size of one file in bytes. The largest official file (CIFAR-100's training file) has 155 million."""

MAX_TOTAL = 2**30
"""Largest size of an unpacked archive in bytes. The official ones have 186 million."""

MAX_RATIO = 20
"""Largest ratio of unpacked to packed size. The official archives have 1.1; zeros have 1000."""

MAX_MEMBERS = 10_000
_FREE = 2**24  # bytes that any archive may unpack to, however small it is: headers compress well


def files(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """Read the `wanted` files that `path` contains. Returns their contents by base name.

    A folder is searched to one level below it. In an archive, regular members are found by their base name at any
    depth. Nothing is written, so a malicious member path has no effect.
    """
    if path.is_dir():
        found = [file for pattern in ("*", "*/*") for file in sorted(path.glob(pattern)) if file.name in wanted]
        contents: dict[str, bytes] = {}
        for file in found:
            if file.is_file() and file.name not in contents:
                _check_size(str(file), file.stat().st_size)
                contents[file.name] = file.read_bytes()
        return contents
    if not path.exists():
        raise InputError(f"{path} does not exist: pass the folder or archive that holds the data")
    try:
        with path.open("rb") as start:
            packed = start.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as content:
            budget = min(MAX_TOTAL, _FREE + MAX_RATIO * path.stat().st_size)
            with tarfile.open(fileobj=cast(IO[bytes], _Budget(content, budget, path)), mode="r|") as archive:
                return _members(archive, wanted, path)
    except InputError:
        raise
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError, OverflowError) as error:
        raise InputError(f"{path} is not a whole tar archive (.tar or .tar.gz): fetch it again") from error


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Budget:
    """A file that may be read up to a number of bytes, so that a small archive cannot grow without end."""

    def __init__(self, file: _Readable, budget: int, path: Path) -> None:
        self._file, self._left, self._path = file, budget, path

    def read(self, size: int) -> bytes:
        content = self._file.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise InputError(f"{self._path} unpacks to far more than its size: fetch it again from its source")
        return content


def _members(archive: tarfile.TarFile, wanted: Collection[str], path: Path) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for number, member in enumerate(archive):
        if number >= MAX_MEMBERS:
            raise InputError(f"{path} has more than {MAX_MEMBERS} members: fetch it again from its source")
        name = PurePosixPath(member.name).name
        if name in wanted and member.isreg() and not member.issparse() and name not in contents:
            _check_size(member.name, member.size)
            file = archive.extractfile(member)
            assert file is not None  # a regular member always opens
            contents[name] = file.read()
    return contents


def _check_size(name: str, size: int) -> None:
    if size > MAX_BYTES:
        raise InputError(f"{name} claims {size} bytes, more than any official file: fetch the archive again")
