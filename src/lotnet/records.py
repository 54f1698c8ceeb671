"""JSON files as frozen dataclasses. Reading checks every value against the type of its field.

A record file is described by one dataclass. `read_record` and `write_record` guarantee:

* a file carries its format version, and a file of an unknown version is refused;
* every value has its field's type (a number is neither text nor a boolean), and no key is missing or unknown;
* writing is atomic: a reader never sees half a file.

A field whose key in the file is not its name has the type `Annotated[TYPE, Key("its key")]`. A record may name some of
its properties in the class variable `DERIVED`: they are written for other readers of the file, and not read.
"""

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from lotnet.errors import InputError
from lotnet.files import atomic_write, unreadable

T = TypeVar("T")


class WrongType(ValueError):
    """A value that does not have its field's type."""


@dataclasses.dataclass(frozen=True)
class Between:
    """The range of a number: `Annotated[int, Between(1, 9)]` is the type of the whole numbers from 1 to 9."""

    low: float
    high: float

    def check(self, value: Any, name: str) -> Any:
        return _expect(value, self.low <= value <= self.high, name, f"from {self.low} to {self.high}, not {value}")


@dataclasses.dataclass(frozen=True)
class Key:
    """The key of a field in the file: `Annotated[int, Key("held out")]`."""

    name: str
    optional: bool = False
    """Whether the key is left out where the value is None."""


def read_record(kind: type[T], path: Path, remedy: str, formats: Sequence[int] = (1,)) -> T:
    """Read the record in a JSON file. `remedy` ends the error message about a missing or damaged file."""
    return parse_record(kind, read_text(path, remedy), str(path), remedy, formats)


def parse_record(kind: type[T], text: str | bytes, source: str, remedy: str, formats: Sequence[int] = (1,)) -> T:
    """Read a record from JSON text. Error messages call it `source`."""
    try:
        content = parse_json(text)
        if not isinstance(content, dict):
            raise WrongType("it is not a JSON object")
        if "format" not in content:
            raise WrongType("it has no format version")
        found = content.pop("format")
    except WrongType as error:
        raise InputError(f"{source} is damaged ({error}): {remedy}") from None
    except ValueError:
        raise InputError(f"{source} is damaged (it is not JSON): {remedy}") from None
    if found not in formats:
        known = " and ".join(map(str, formats))
        raise InputError(f"{source} has format {found!r}, this lotnet reads {known}: {remedy}")
    try:
        return convert(kind, content)
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{source} is damaged ({error}): {remedy}") from None


def parse_json(text: str | bytes) -> Any:
    """Parse any JSON value. Raises a `ValueError` if the text is none, also where it is nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def write_record(path: Path, record: Any, version: int = 1, indent: int | None = 1) -> None:
    """Write a dataclass as JSON, with its format version first."""
    content = {"format": version, **to_json(record)}
    atomic_write(path, (json.dumps(content, indent=indent) + "\n").encode())


def to_json(value: Any) -> Any:
    """The JSON value of a record, or of whatever a field may hold. `convert` reads it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {key.name: (key, getattr(value, field)) for field, key in _keys(type(value)).items()}
        content = {name: item for name, (key, item) in found.items() if item is not None or not key.optional}
        return to_json(content | {name: getattr(value, name) for name in _derived(type(value))})
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def read_text(path: Path, remedy: str) -> str:
    """Read a text file. Raises an `InputError` that ends with `remedy`."""
    try:
        return path.read_text()
    except OSError as error:
        raise unreadable(path, error, remedy) from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is damaged (it is not text): {remedy}") from None


def convert(kind: Any, value: Any, name: str = "it") -> Any:
    """Convert a parsed JSON value to the annotated type `kind`. Raises `WrongType` if it has another type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        value = convert(inner[0], value, name)
        domains = (item for item in kind.__metadata__ if not isinstance(item, Key))
        return functools.reduce(lambda found, domain: domain.check(found, name), domains, value)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, name)
    if origin in (Union, types.UnionType):
        return _union(inner, value, name)
    if origin is Literal:
        return _expect(value if value in inner else None, value in inner, name, f"one of {', '.join(map(str, inner))}")
    if origin in (list, tuple):
        _expect(value, isinstance(value, list | tuple), name, "a list")
        kinds = [inner[0]] * len(value) if origin is list or inner[-1] is Ellipsis else inner
        _expect(value, len(kinds) == len(value), name, f"a list of {len(kinds)}")
        return origin(
            convert(kind, item, f"{name}[{n}]") for n, (kind, item) in enumerate(zip(kinds, value, strict=True))
        )
    if origin is dict:
        _expect(value, isinstance(value, Mapping), name, "an object")
        return {convert(inner[0], key, name): convert(inner[1], item, f"{name}.{key}") for key, item in value.items()}
    return _scalar(kind, value, name)


def _dataclass(kind: Any, value: Any, name: str) -> Any:
    _expect(value, isinstance(value, Mapping), name, "an object")
    keys = {field: key.name for field, key in _keys(kind).items()}
    known = {*keys.values(), *_derived(kind)}
    prefix = "" if name == "it" else f"{name}."
    for key in value:
        if key not in known:
            raise WrongType(f"{prefix}{key} is unknown")
    hints = _hints(kind)
    found = {}
    for item in dataclasses.fields(kind):
        key = keys[item.name]
        if key in value:
            found[item.name] = convert(hints[item.name], value[key], f"{prefix}{key}")
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise WrongType(f"{prefix}{key} is missing")
    return kind(**found)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(
        kind, include_extras=True
    )  # cached: this is slow, and a file may have thousands of records of one kind


@functools.cache
def _keys(kind: Any) -> dict[str, Key]:
    """The key of each field, by its name."""
    found = {}
    for item in dataclasses.fields(kind):
        annotations = getattr(_hints(kind)[item.name], "__metadata__", ())
        found[item.name] = next((key for key in annotations if isinstance(key, Key)), Key(item.name))
    return found


def _derived(kind: Any) -> tuple[str, ...]:
    return getattr(kind, "DERIVED", ())


def _union(kinds: tuple[Any, ...], value: Any, name: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    problem: WrongType | None = None
    for kind in kinds:
        if kind is not types.NoneType:
            try:
                return convert(kind, value, name)
            except WrongType as error:
                problem = problem or error
    raise problem or WrongType(f"{name} must be null")


def _scalar(kind: Any, value: Any, name: str) -> Any:
    if kind is float:  # some JSON writers print 1.0 as 1
        _expect(value, isinstance(value, int | float) and not isinstance(value, bool), name, "a number")
        return float(value)
    if kind is int:
        return _expect(value, isinstance(value, int) and not isinstance(value, bool), name, "a whole number")
    words = {str: "text", bool: "true or false", types.NoneType: "null"}
    if kind not in words:
        raise TypeError(f"no JSON value becomes a {kind}")
    return _expect(value, isinstance(value, kind), name, words[kind])


def _expect(value: Any, holds: bool, name: str, wanted: str) -> Any:
    if not holds:
        raise WrongType(f"{name} must be {wanted}")
    return value
