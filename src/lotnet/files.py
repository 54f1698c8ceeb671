"""Files that are either whole or not there, and folders for them, which a process can have to itself."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lotnet.errors import InputError


def atomic_write(path: Path, content: bytes) -> None:
    """Write to a neighbour, flush it to the disk, then rename: a reader never sees half a file, and a failure leaves
    the old one as it was."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another folder or make room") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror}; make room and try again, nothing was lost") from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def make_folder(path: Path, remedy: str = "choose another") -> None:
    """With its parents, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path} ({error.strerror}): {remedy}") from None


def is_writable(folder: Path) -> bool:
    """Whether a file can be made in the folder. Found out by making one: permissions do not tell about file systems."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def writable_folder(folder: Path) -> Path:
    """Make the folder unless it is there, and check that a file can be made in it."""
    make_folder(folder, "choose another with --out")
    if not is_writable(folder):
        raise InputError(f"nothing can be written in {folder}: choose another folder with --out")
    return folder


@contextlib.contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """No other process can claim the folder meanwhile; the claim goes with the process, however that ends.

    Where the file system knows no such thing, everybody's claim is granted.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another process works in {folder}: wait until it ends, or choose another --out"
            raise InputError(message) from None
        except OSError:
            pass
        yield
    finally:
        os.close(handle)
