"""Atomic writes, folders, and an exclusive lock on a folder."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lotnet.errors import InputError


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new content, never half of it.

    The content goes to a temporary file in the same folder, which is flushed to the disk and then renamed. A failure
    leaves the old file as it was.
    """
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
    """Make the folder and its parents, unless they exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path} ({error.strerror}): {remedy}") from None


def is_writable(folder: Path) -> bool:
    """Whether a file can be made in the folder. Tries it, because permissions do not show a read-only file system."""
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
    """Hold an exclusive lock on the folder. Raises an `InputError` if another process holds it.

    The operating system releases the lock when the process ends, even if it is killed. Where there is no locking (on
    Windows, and on some network file systems), nothing is locked.
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
