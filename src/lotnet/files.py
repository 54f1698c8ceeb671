"""Atomic writes, folders, and an exclusive lock on a folder."""

import contextlib
import glob
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePath

from lotnet.errors import InputError

_PARTIAL = ".partial"


def unreadable(
    path: Path, error: OSError, remedy: str = "check its permissions and the disk, and try again"
) -> InputError:
    """The error about a file that cannot be read. Nothing is known about its content, so it is not called damaged."""
    return InputError(f"cannot read {path} ({error.strerror or error}): {remedy}")


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new content, never half of it."""
    with replacing(path) as partial:
        partial.write_bytes(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file in the same folder, which then replaces `path`.

    The temporary file is flushed to the disk and renamed, and then the folder is flushed, so that a power cut leaves
    the old file or the new one. A failure leaves the old file as it was. A new file has the mode that the user's umask
    gives, and a replaced one keeps its own. Temporary files of killed processes are removed.
    """
    try:
        partial, handle = _temporary(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another folder or make room") from None
    try:
        with _locked(handle):
            mode = (path if path.exists() else partial).stat().st_mode
            remove_partial_files(path.parent, path.name)
            yield partial
            partial.chmod(stat.S_IMODE(mode))
            _flush(partial)
            partial.replace(path)
        _flush(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):  # on a disk that is read-only by now
            partial.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror}; make room and try again, nothing was lost") from None
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def remove_partial_files(folder: Path, name: str = "") -> None:
    """Remove temporary files that killed processes left: all in the folder, or those of the file `name`."""
    for path in folder.glob(f".{glob.escape(name[:_LONGEST])}*{_PARTIAL}"):
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY)
            with _locked(handle) as free:
                if free:  # its writer has ended
                    path.unlink(missing_ok=True)


def is_partial_file(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(_PARTIAL)


_LONGEST = 50  # characters of the name that a temporary name repeats: file systems allow 255 bytes


def _temporary(path: Path) -> tuple[Path, int]:
    """Make a temporary file beside `path`. Returns its path and an open handle."""
    partial = path.with_name(f".{path.name[:_LONGEST]}.{secrets.token_hex(4)}{_PARTIAL}")
    return partial, os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)


def _flush(path: Path) -> None:
    """Flush a file to the disk, or the names in a folder, where the system can do that."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        if path.is_dir():  # Windows cannot open folders
            return
        raise
    try:
        os.fsync(handle)
    except OSError:
        if not path.is_dir():  # some network file systems cannot flush folders
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def _locked(handle: int) -> Iterator[bool]:
    """Lock an open file until the block ends, and then close it. Yields whether no other process holds the lock."""
    try:
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except (ImportError, OSError):  # not on Windows, nor on some network file systems
            free = False
        yield free
    finally:
        os.close(handle)


def make_folder(path: Path, remedy: str = "choose another") -> None:
    """Make the folder and its parents, unless they exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path} ({error.strerror}): {remedy}") from None


def without_folders(path: str) -> str:
    """The last part of a path that begins at the root or at home. What is relative, or no path, stays as it is.

    >>> without_folders("/home/me/models/first"), without_folders("runs/first")
    ('first', 'runs/first')
    """
    return PurePath(path).name if path.startswith(("/", "~")) or PurePath(path).is_absolute() else path


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
