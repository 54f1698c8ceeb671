"""A stack machine that runs the program in a pickle without access to any object outside of it.

It has no instruction that imports or looks up anything. A name in the program is a key of a table that the caller
passes, and a call runs the function in that table. Only a `StandIn` can be given a state. Invariant: for any bytes,
memory stays within a small multiple of the size of the file.
"""

from __future__ import annotations

import ast
import os
import pickle
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import IO, Any


class RefusedError(Exception):
    """The program asked for something that is not on the allow-list."""


class StandIn(ABC):
    """An object that a program may create by a call, and whose state it may then set."""

    @abstractmethod
    def set_state(self, machine: PickleMachine, state: Any) -> None: ...


class AllowedName:
    """A name that a program may use, and the function that is called for it, with the machine as first argument."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


class PickleMachine:
    """The stack machine: one method for each kind of instruction, and no access to any object outside of it."""

    def __init__(self, file: IO[bytes], names: Mapping[tuple[str, str], AllowedName]) -> None:
        self._file, self._names = file, names
        start = file.tell()
        self._left = file.seek(0, os.SEEK_END) - start
        file.seek(start)
        self._encodable = self._left  # in a file of arrays, each string is encoded at most once
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Execute the program up to STOP, and return the value on top of the stack."""
        while (code := self.take(1)) != pickle.STOP:
            if code not in _INSTRUCTIONS:
                if code in _OPCODES:
                    raise RefusedError(f"the instruction {_OPCODES[code]}")
                raise ValueError(f"{code!r} is no instruction")
            _INSTRUCTIONS[code](self)
        return self._stack.pop()

    # Reading.

    def take(self, size: int) -> bytes:
        """Read `size` bytes. A size beyond the end of the file raises EOFError and allocates nothing."""
        if not 0 <= size <= self._left:
            raise EOFError
        self._left -= size
        return self._file.read(size)

    def line(self) -> bytes:
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        self._left -= len(line)
        return line[:-1]

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    # The stack.

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def pop(self, kind: type | tuple[type, ...] = object) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise ValueError("nothing to pop above the last mark")
        value = self._stack.pop()
        if not isinstance(value, kind):
            raise TypeError(f"a {type(value).__name__} at the wrong place")
        return value

    def duplicate(self) -> None:
        value = self.pop()
        self._stack += [value, value]

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def pop_to_mark(self) -> list[Any]:
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def pop_several(self, count: int) -> tuple[Any, ...]:
        return tuple([self.pop() for _ in range(count)][::-1])

    # Containers and the memo.

    def extend(self, values: list[Any]) -> None:
        target = self.pop(list)
        target.extend(values)
        self.push(target)

    def update(self, items: list[Any]) -> None:
        target = self.pop(dict)
        target.update(_pairs(items))
        self.push(target)

    def store(self, key: int | None = None) -> None:
        value = self.pop()
        self._memo[len(self._memo) if key is None else key] = value
        self.push(value)

    def recall(self, key: int) -> None:
        self.push(self._memo[key])

    # Names and calls.

    def name(self, module: str, name: str) -> None:
        if (module, name) not in self._names:
            raise RefusedError(f"{module}.{name}")
        self.push(self._names[module, name])

    def stack_name(self) -> None:
        module, name = self.pop_several(2)
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name that is no string")
        self.name(module, name)

    def call(self) -> None:
        arguments, name = self.pop(tuple), self.pop(AllowedName)
        self.push(name.call(self, *arguments))

    def build(self) -> None:
        state, target = self.pop(), self.pop()
        if not isinstance(target, StandIn):
            raise RefusedError(f"a change to an object of type {type(target).__name__}")
        target.set_state(self, state)
        self.push(target)

    def encode(self, text: Any, _: Any = None) -> bytes:
        """Convert a string to bytes. The total is bounded, because a program may convert one string many times."""
        self._encodable -= len(text)
        if self._encodable < 0:
            raise RefusedError("more bytes than it holds")
        return bytes(text.encode("latin1"))


def _protocol(machine: PickleMachine) -> None:
    if machine.take(1)[0] > pickle.HIGHEST_PROTOCOL:
        raise ValueError("a protocol of the future")


def _integer(line: bytes) -> int:
    """The argument of INT; protocol 0 writes the booleans as 00 and 01."""
    return line == b"01" if line in (b"00", b"01") else int(line)


def _quoted(line: bytes) -> str:
    """The argument of STRING: a Python 2 string literal."""
    value = ast.literal_eval("b" + line.decode("ascii"))
    if not isinstance(value, bytes):
        raise TypeError("a literal that is no string")
    return value.decode("latin1")


def _long(machine: PickleMachine, layout: str) -> int:
    return int.from_bytes(machine.take(machine.number(layout)), "little", signed=True)


def _bytes(machine: PickleMachine, layout: str) -> bytes:
    return machine.take(machine.number(layout))


def _string(machine: PickleMachine, layout: str, encoding: str = "utf-8") -> str:
    return _bytes(machine, layout).decode(encoding, "surrogatepass" if encoding == "utf-8" else "strict")


_INSTRUCTIONS: dict[bytes, Callable[[PickleMachine], Any]] = {
    pickle.PROTO: _protocol,
    pickle.FRAME: lambda m: m.take(8),
    pickle.MARK: lambda m: m.mark(),
    pickle.POP: lambda m: m.pop(),
    pickle.POP_MARK: lambda m: m.pop_to_mark(),
    pickle.DUP: lambda m: m.duplicate(),
    pickle.NONE: lambda m: m.push(None),
    pickle.NEWTRUE: lambda m: m.push(True),
    pickle.NEWFALSE: lambda m: m.push(False),
    pickle.INT: lambda m: m.push(_integer(m.line())),
    pickle.BININT: lambda m: m.push(m.number("<i")),
    pickle.BININT1: lambda m: m.push(m.number("<B")),
    pickle.BININT2: lambda m: m.push(m.number("<H")),
    pickle.LONG: lambda m: m.push(int(m.line().rstrip(b"L"))),
    pickle.LONG1: lambda m: m.push(_long(m, "<B")),
    pickle.LONG4: lambda m: m.push(_long(m, "<i")),
    pickle.FLOAT: lambda m: m.push(float(m.line())),
    pickle.BINFLOAT: lambda m: m.push(m.number(">d")),
    pickle.STRING: lambda m: m.push(_quoted(m.line())),
    pickle.BINSTRING: lambda m: m.push(_string(m, "<i", "latin1")),
    pickle.SHORT_BINSTRING: lambda m: m.push(_string(m, "<B", "latin1")),
    pickle.UNICODE: lambda m: m.push(str(m.line(), "raw-unicode-escape")),
    pickle.BINUNICODE: lambda m: m.push(_string(m, "<I")),
    pickle.SHORT_BINUNICODE: lambda m: m.push(_string(m, "<B")),
    pickle.BINUNICODE8: lambda m: m.push(_string(m, "<Q")),
    pickle.BINBYTES: lambda m: m.push(_bytes(m, "<I")),
    pickle.SHORT_BINBYTES: lambda m: m.push(_bytes(m, "<B")),
    pickle.BINBYTES8: lambda m: m.push(_bytes(m, "<Q")),
    pickle.BYTEARRAY8: lambda m: m.push(bytearray(_bytes(m, "<Q"))),
    pickle.EMPTY_LIST: lambda m: m.push([]),
    pickle.LIST: lambda m: m.push(m.pop_to_mark()),
    pickle.APPEND: lambda m: m.extend([m.pop()]),
    pickle.APPENDS: lambda m: m.extend(m.pop_to_mark()),
    pickle.EMPTY_TUPLE: lambda m: m.push(()),
    pickle.TUPLE: lambda m: m.push(tuple(m.pop_to_mark())),
    pickle.TUPLE1: lambda m: m.push(m.pop_several(1)),
    pickle.TUPLE2: lambda m: m.push(m.pop_several(2)),
    pickle.TUPLE3: lambda m: m.push(m.pop_several(3)),
    pickle.EMPTY_DICT: lambda m: m.push({}),
    pickle.DICT: lambda m: m.push(_pairs(m.pop_to_mark())),
    pickle.SETITEM: lambda m: m.update(list(m.pop_several(2))),
    pickle.SETITEMS: lambda m: m.update(m.pop_to_mark()),
    pickle.MEMOIZE: lambda m: m.store(),
    pickle.PUT: lambda m: m.store(int(m.line())),
    pickle.BINPUT: lambda m: m.store(m.number("<B")),
    pickle.LONG_BINPUT: lambda m: m.store(m.number("<I")),
    pickle.GET: lambda m: m.recall(int(m.line())),
    pickle.BINGET: lambda m: m.recall(m.number("<B")),
    pickle.LONG_BINGET: lambda m: m.recall(m.number("<I")),
    pickle.GLOBAL: lambda m: m.name(m.line().decode("utf-8"), m.line().decode("utf-8")),
    pickle.STACK_GLOBAL: lambda m: m.stack_name(),
    pickle.REDUCE: lambda m: m.call(),
    pickle.BUILD: lambda m: m.build(),
}

_OPCODES = {getattr(pickle, name): name for name in pickle.__all__ if isinstance(getattr(pickle, name), bytes)}
"""Names of all pickle instructions. Those that are not in `_INSTRUCTIONS` are refused."""


def _pairs(items: list[Any]) -> dict[Any, Any]:
    keys = items[::2]
    for key in keys:
        # The hash of tuples that are nested n levels deep takes 2^n steps.
        if not all(
            isinstance(part, str | bytes | int | float | None) for part in (key if type(key) is tuple else [key])
        ):
            raise RefusedError("a key that is a container")
    return dict(zip(keys, items[1::2], strict=True))
