"""Read a few named files from a folder or a tar archive into memory. Nothing is unpacked to disk."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from lotnet.errors import InputError

MAX_BYTES = 256 * 2**20
"""Largest size of one file in bytes. The largest official file (CIFAR-100's training file) has 155 million."""


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
        with tarfile.open(path) as archive:
            return _members(archive, wanted)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path} is not a whole tar archive: fetch it again") from error


def _members(archive: tarfile.TarFile, wanted: Collection[str]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for member in archive:
        name = PurePosixPath(member.name).name
        if name in wanted and member.isreg() and name not in contents:
            _check_size(member.name, member.size)
            file = archive.extractfile(member)
            assert file is not None  # a regular member always opens
            contents[name] = file.read()
    return contents


def _check_size(name: str, size: int) -> None:
    if size > MAX_BYTES:
        raise InputError(f"{name} claims {size} bytes, more than any official file: fetch the archive again")
