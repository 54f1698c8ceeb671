"""Read arrays and plain containers from a pickle without running its code.

A pickle is a program that names functions and calls them. `PickleMachine` runs this program. The few names that a file
of arrays needs resolve to functions of this module, which only describe arrays. Arrays are then made by
`numpy.frombuffer`, with a number type from a short list. Invariant: loading any bytes returns dicts, lists, tuples,
numbers, strings, bytes and numeric arrays, or raises `InputError`; it has no other effect.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np

from lotnet.data.pickle_machine import AllowedName, PickleMachine, RefusedError, StandIn
from lotnet.errors import InputError

_NUMBERS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f2", "f4", "f8", "b1"}


def load_arrays(file: IO[bytes], name: str | Path) -> Any:
    """Return the contents of an open pickle file; errors call it `name`. Python 2 strings become str."""
    try:
        return _plain(PickleMachine(file, _ALLOWED).run(), {})
    except RefusedError as refused:
        raise InputError(
            f"{name} was refused because it asks for {refused}, which no file of arrays needs: "
            "get it again from its official source"
        ) from None
    except MemoryError:
        raise InputError(f"{name} does not fit into memory: use a larger machine or a smaller file") from None
    except Exception as error:  # malformed programs raise nearly any exception type
        raise InputError(f"{name} is not a readable pickle of arrays: get it again") from error


class _Number(StandIn):
    """Stand-in for `numpy.dtype` of one number type."""

    def __init__(self, code: Any) -> None:
        code = _text(code)
        self._order = code[0] if code[:1] in ("<", ">", "|", "=") else "="
        self._code = code.lstrip("<>|=")
        if self._code not in _NUMBERS:
            raise RefusedError(f"elements of type {code[:20]!r}")

    def set_state(self, machine: PickleMachine, state: Any) -> None:
        _, order, *extras = state
        if any(extra is not None for extra in extras[:3]):
            raise RefusedError("structured array elements")
        self._order = {"<": "<", ">": ">", "|": "|", "=": "="}[_text(order)]

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self._code).newbyteorder("=" if self._order == "|" else self._order)
        return dtype


class _Array(StandIn):
    """Stand-in for an array, which a pickle first creates empty and then gives its state."""

    def __init__(self, value: np.ndarray | None = None) -> None:
        self.value = value

    def set_state(self, machine: PickleMachine, state: Any) -> None:
        _, shape, number, fortran, data = state
        self.value = _array(machine, number, data, shape, "F" if fortran else "C")


def _array(machine: PickleMachine, number: Any, data: Any, shape: Any, order: Any = "C") -> np.ndarray:
    if not isinstance(number, _Number):
        raise TypeError("an array without a number type")
    raw = machine.encode(data) if isinstance(data, str) else data
    return np.frombuffer(raw, number.dtype).reshape(shape, order="F" if order == "F" else "C")


def _refuse_array(machine: PickleMachine, *_: Any) -> Any:
    raise RefusedError("a bare numpy.ndarray")


_RECONSTRUCT = AllowedName(lambda machine, *_: _Array())
_SCALAR = AllowedName(lambda machine, number, data: _array(machine, number, data, (1,))[0].item())
_FROM_BUFFER = AllowedName(
    lambda machine, data, number, shape, order: _Array(_array(machine, number, data, shape, order))
)

_ALLOWED: dict[tuple[str, str], AllowedName] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,  # since numpy 2
    ("numpy.core.multiarray", "scalar"): _SCALAR,
    ("numpy._core.multiarray", "scalar"): _SCALAR,
    ("numpy.core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("numpy._core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("numpy", "dtype"): AllowedName(lambda machine, code, *_: _Number(code)),
    ("numpy", "ndarray"): AllowedName(_refuse_array),
    # How Python 3 writes bytes, and empty bytes, into protocol 2.
    ("_codecs", "encode"): AllowedName(PickleMachine.encode),
    ("__builtin__", "bytes"): AllowedName(lambda machine: b""),
}


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes):
        raise TypeError("a number type that is no string")  # the text of nested tuples has exponential length
    return value.decode("latin1") if isinstance(value, bytes) else value


def _plain(value: Any, done: dict[int, Any]) -> Any:
    """Copy the containers, and replace every stand-in by the array it describes.

    `done` holds the copies by the identity of the original, because a pickle may refer to one list a million times.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes | bytearray):
        return value
    if id(value) not in done:
        if isinstance(value, _Array) and value.value is not None:
            done[id(value)] = value.value
        elif isinstance(value, dict):
            pairs = value.items()
            done[id(value)] = {_plain(key, done): _plain(item, done) for key, item in pairs}
        elif isinstance(value, list | tuple):
            done[id(value)] = type(value)(_plain(item, done) for item in value)
        else:
            raise RefusedError(f"a value of type {type(value).__name__.lstrip('_')}")
    return done[id(value)]
