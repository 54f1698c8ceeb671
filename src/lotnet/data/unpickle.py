"""Arrays and plain containers out of a pickle, and nothing else.

A pickle is a program: it names functions and calls them. Here every name it may use resolves to a guard
object of this module, so that its calls can do no more than describe an array; numpy itself sees only
`frombuffer` on bytes, with a number type from a short list. Invariant: loading any bytes whatsoever returns dicts,
lists, tuples, numbers, strings, bytes and numeric arrays, or raises `InputError`; nothing else happens.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from lotnet.errors import InputError

_NUMBERS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f2", "f4", "f8", "b1"}


def load_arrays(file: IO[bytes], name: str | Path) -> Any:
    """The contents of an open pickle file; `name` is what an error calls it. Python 2 strings become str."""
    try:
        return _plain(_Restricted(_WholeLines(file), encoding="latin1").load(), {})
    except _Refused as refused:
        raise InputError(
            f"{name} was refused because it asks for {refused}, which no file of arrays needs: "
            "get it again from its official source"
        ) from None
    except MemoryError:
        raise InputError(f"{name} does not fit into memory: use a larger machine or a smaller file") from None
    except Exception as error:  # malformed opcodes surface as nearly any exception type
        raise InputError(f"{name} is not a readable pickle of arrays: get it again") from error


class _Refused(Exception):
    """The pickle named something outside the list."""


class _Guard:
    """A callable that a pickle can reach: without attributes to overwrite, and no class to subclass."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setstate__(self, state: Any) -> None:
        raise _Refused("a change to a function")


class _Number:
    """Stands for `numpy.dtype` of one number type."""

    __slots__ = ("_code", "_order")

    def __init__(self, code: Any, *_: Any) -> None:
        code = _text(code)
        self._order = code[0] if code[:1] in ("<", ">", "|", "=") else "="
        self._code = code.lstrip("<>|=")
        if self._code not in _NUMBERS:
            raise _Refused(f"elements of type {code!r}")

    def __setstate__(self, state: tuple) -> None:
        _, order, *extras = state
        if any(extra is not None for extra in extras[:3]):
            raise _Refused("structured array elements")
        self._order = {"<": "<", ">": ">", "|": "|", "=": "="}[_text(order)]

    def array(self, data: Any, shape: tuple[int, ...], order: str) -> np.ndarray:
        raw = data.encode("latin1") if isinstance(data, str) else data
        dtype = np.dtype(self._code).newbyteorder("=" if self._order == "|" else self._order)
        return np.frombuffer(raw, dtype).reshape(shape, order="F" if order == "F" else "C")


class _Array:
    """Stands for an array that is first reconstructed empty and then given its state."""

    __slots__ = ("value",)

    def __init__(self, value: np.ndarray | None = None) -> None:
        self.value = value

    def __setstate__(self, state: tuple) -> None:
        _, shape, number, fortran, data = state
        self.value = number.array(data, shape, "F" if fortran else "C")


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("multiarray", "_reconstruct"): lambda *_: _Array(),
    ("multiarray", "scalar"): lambda number, data: number.array(data, (1,), "C")[0].item(),
    ("numeric", "_frombuffer"): lambda data, number, shape, order: _Array(number.array(data, shape, order)),
    ("numpy", "dtype"): _Number,
    ("numpy", "ndarray"): lambda *_: _refuse("a bare numpy.ndarray"),
    # How Python 3 writes bytes, and no bytes, into protocol 2.
    ("_codecs", "encode"): lambda text, _: text.encode("latin1"),
    ("__builtin__", "bytes"): lambda: b"",
}


class _Restricted(pickle._Unpickler):
    """The unpickler that is written in Python: the one in C makes room for the number that a pickle gives an object, so
    that five bytes could ask for 32 GB."""

    def find_class(self, module: str, name: str) -> Any:
        short = module.removeprefix("numpy.core.").removeprefix("numpy._core.")
        admitted = _ADMITTED.get((short, name))
        if admitted is None:
            raise _Refused(f"{module}.{name}")
        return _Guard(admitted)


class _WholeLines:
    """A file whose lines all end: that unpickler would take half a name, at the end of a cut file, for a name."""

    def __init__(self, file: IO[bytes]) -> None:
        self.read = file.read
        self._readline = file.readline

    def readline(self) -> bytes:
        line = self._readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line


def _refuse(what: str) -> Any:
    raise _Refused(what)


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _plain(value: Any, done: dict[int, Any]) -> Any:
    """The same containers with every stand-in replaced by the array it describes.

    `done` keeps what was converted by identity: a pickle may share one list a million times.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes | bytearray):
        return value
    if id(value) not in done:
        if isinstance(value, _Array) and value.value is not None:
            done[id(value)] = value.value
        elif isinstance(value, dict):
            done[id(value)] = {_plain(key, done): _plain(item, done) for key, item in value.items()}
        elif isinstance(value, list | tuple):
            done[id(value)] = type(value)(_plain(item, done) for item in value)
        else:
            raise _Refused(f"a value of type {type(value).__name__.lstrip('_')}")
    return done[id(value)]
