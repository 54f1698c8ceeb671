"""Check values against the types of settings: nested dicts from files, or text from a command line."""

import dataclasses
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from lotnet.config.yaml_text import load_yaml
from lotnet.errors import InputError
from lotnet.spelling import nearest

_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def field_types(settings: type, group: str = "") -> dict[str, Any]:
    """The type of each field of a dataclass, by its dotted name GROUP.FIELD."""
    hints = typing.get_type_hints(settings)
    return {f"{group}.{f.name}" if group else f.name: hints[f.name] for f in dataclasses.fields(settings)}


def flatten(values: Any, known: Mapping[str, Any], source: str, prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted names. An unknown name is refused, with the nearest known name."""
    if not isinstance(values, dict):
        raise InputError(f"{source}: {prefix[:-1] or 'it'} is not a group of settings, `key: value` on each line")
    flat = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in known:
            flat[name] = value
        elif any(other.startswith(f"{name}.") for other in known):
            flat |= flatten(value, known, source, f"{name}.")
        else:
            raise unknown_setting(name, known, source)
    return flat


def unknown_setting(name: str, known: Mapping[str, Any], source: str) -> InputError:
    groups = {other.split(".")[0]: None for other in known if "." in other}
    return InputError(f"{source} has an unknown setting {name}{nearest(name, [*groups, *known])}")


def read_value(value: Any, kind: Any, name: str, source: str) -> Any:
    """Check that `value` has the type `kind`. A float may also be a whole number or a fraction such as 36/255."""
    return _or_refuse(_convert, value, kind, name, source)


def read_text(text: str, kind: Any, name: str, source: str) -> Any:
    """Parse a text from a command line as a value of the type `kind`."""
    return _or_refuse(_parse, text, kind, name, source)


def _or_refuse(read: Callable[[Any, Any], Any], given: Any, kind: Any, name: str, source: str) -> Any:
    try:
        return read(given, kind)
    except _MismatchError:
        pass
    if given in (None, "null"):
        raise InputError(f"{source}: {name} cannot be null: give a value or leave it out")
    shown = str(given).lower() if isinstance(given, bool) else repr(given)
    raise InputError(f"{source}: {name} cannot be {shown}: give {_wanted(kind)}")


class _MismatchError(Exception):
    """The value is not of that type."""


def _convert(value: Any, kind: Any) -> Any:
    """Check a value from a file. Unlike in Python, a bool is never a number here."""
    members = _members(kind)
    if members:
        return _first(members, lambda member: _convert(value, member))
    if get_origin(kind) is Literal and isinstance(value, str) and value in get_args(kind):
        return value
    if get_origin(kind) is dict and isinstance(value, dict):
        key_kind, value_kind = get_args(kind)
        return {_convert(key, key_kind): _convert(item, value_kind) for key, item in value.items()}
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(_convert(item, get_args(kind)[0]) for item in value)
    if kind is float and isinstance(value, str) and "/" in value:
        return _parse_float(value)
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind in (int, bool, str, NoneType) and type(value) is kind:
        return value
    raise _MismatchError


def _parse(text: str, kind: Any) -> Any:
    members = _members(kind)
    if members:
        return _first(sorted(members, key=lambda member: member is str), lambda member: _parse(text, member))
    if kind is int and re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    if kind is float:
        return _parse_float(text)
    if kind is bool and text in ("true", "false"):
        return text == "true"
    if kind is NoneType and text == "null":
        return None
    if get_origin(kind) in (dict, tuple):
        try:
            return _convert(load_yaml(text), kind)
        except ValueError:
            raise _MismatchError from None
    return _convert(text, kind)


def read_number(text: str) -> float | None:
    """The finite number, or the fraction such as 36/255, in a text; None if it is neither."""
    try:
        value = float(Fraction(text.replace(" ", ""))) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _parse_float(text: str) -> float:
    value = read_number(text)
    if value is None:
        raise _MismatchError
    return value


def _members(kind: Any) -> tuple[Any, ...]:
    """The members of a union type; empty for any other type."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else ()


def _first(members: Iterable[Any], convert: Callable[[Any], Any]) -> Any:
    for member in members:
        try:
            return convert(member)
        except _MismatchError:
            continue
    raise _MismatchError


def _wanted(kind: Any) -> str:
    """The values that a setting of this type takes, in words."""
    if members := _members(kind):  # null is only the way to leave a setting out
        return " or ".join(_wanted(member) for member in members if member is not NoneType)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is dict:
        return f"settings by name, {{name: value}}, each {_wanted(get_args(kind)[1])}"
    if get_origin(kind) is tuple:
        return f"a list, each item {_wanted(get_args(kind)[0])}"
    return _NAMES[kind]
