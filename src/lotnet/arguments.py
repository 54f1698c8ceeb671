"""Command-line and recipe parsing: typed by annotations, helped by docstrings, wrong in one sentence."""

import dataclasses
import difflib
import inspect
import re
import typing
from argparse import SUPPRESS
from collections.abc import Iterable
from typing import Any, NoReturn

import docstring_parser
from jsonargparse import ArgumentParser, Namespace

from lotnet.errors import InputError

COMMON: dict[str, dict[str, Any]] = {
    "seed": {"type": int, "default": 0, "help": "Everything random follows from it."},
    "limit": {"type": int | None, "default": None, "help": "Use only so many images of each split."},
    "device": {"type": str, "default": "auto", "help": "cpu, cuda, cuda:1, ...; auto is a GPU if there is one."},
    "json": {"action": "store_true", "help": "Print one JSON object on stdout, everything else on stderr."},
}
"""Options that mean the same under every verb."""


class Parser(ArgumentParser):
    """jsonargparse, with errors as `InputError`: one sentence that names the nearest valid spelling."""

    def __init__(self, prog: str, description: str = "") -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, exit_on_error=False)

    def add_common(self, *names: str) -> None:
        for name in names:
            self.add_argument(f"--{name}", **COMMON[name])

    def add_fields(self, settings: type, title: str, prefix: str = "") -> None:
        """One option for each field of a dataclass, --PREFIX.FIELD, or --FIELD without a prefix."""
        group = self.add_argument_group(title)
        hints, docs = typing.get_type_hints(settings), _field_docs(settings)
        for item in dataclasses.fields(settings):
            default = item.default
            if item.default_factory is not dataclasses.MISSING:
                default = item.default_factory()
            option = f"--{prefix}.{item.name}" if prefix else f"--{item.name}"
            group.add_argument(option, type=hints[item.name], default=default, help=docs.get(item.name, ""))

    def settings(self) -> list[str]:
        """Dotted names of all options that take a value."""
        return [action.dest for action in self._actions if action.default != SUPPRESS]

    def check(self, values: dict[str, Any], source: str) -> Namespace:
        """Values from a file, typed and completed by defaults."""
        flatten(values, self.settings(), source)
        return self._without_gaps(self.parse_object(values))

    def read(self, arguments: list[str]) -> Namespace:
        """Values from the command line, typed and completed by defaults."""
        return self._without_gaps(self.parse_args(arguments))

    def _without_gaps(self, parsed: Namespace) -> Namespace:
        for action in self._actions:  # jsonargparse lets null through wherever a value may be left out
            if action.default not in (None, SUPPRESS) and parsed[action.dest] is None:
                raise InputError(f"{self.prog}: {action.dest} cannot be null: give a value or leave it out")
        return parsed

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise InputError(self._sentence(message)) from None

    def _sentence(self, message: str) -> str:
        words = " ".join(message.split())
        if found := re.match(r"unrecognized arguments?: (\S+)", words):
            option = found[1].split("=")[0]
            options = [string for action in self._actions for string in action.option_strings]
            return f"{self.prog} does not know {option}{nearest(option, options)}"
        if found := re.match(r'Parser key "(.+?)": (.*) (?:Got|Given) value: (.*)', words):
            return f"{self.prog}: {found[1]} cannot be {found[3]!r}: give {_wanted(found[2])}"
        return f"{self.prog}: {words}: see `lotnet --help`"


def flatten(values: Any, known: Iterable[str], source: str, prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name; one that is not known is an error that names the nearest."""
    known = set(known)
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
            groups = {other.split(".")[0]: None for other in known if "." in other}
            raise InputError(f"{source} has an unknown setting {name}{nearest(name, [*groups, *known])}")
    return flat


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence: what may have been meant, compared whole or by what follows the last dot."""
    by_part: dict[str, str] = {}
    for name in known:
        by_part.setdefault(name, name)
        by_part.setdefault(name.lstrip("-").rsplit(".", 1)[-1], name)
    for part in (word, word.lstrip("-").rsplit(".", 1)[-1]):
        if close := difflib.get_close_matches(part, by_part, n=1, cutoff=0.6):
            return f": did you mean {by_part[close[0]]}?"
    group = word.split(".")[0] + "."
    names = list(dict.fromkeys(by_part.values()))
    choices = [name for name in names if name.startswith(group)] or names
    return f": choose one of {', '.join(choices)}" if len(choices) <= 16 else ": --help lists what there is"


def _wanted(expected: str) -> str:
    """What jsonargparse expects, in words."""
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "NoneType": "null"}
    if choices := re.search(r"Literal\[(.*?)\]", expected):
        return "one of " + choices[1].replace("'", "")
    types = dict.fromkeys(re.findall(r"<class '(\w+)'>", expected.split("Errors:")[0]))
    return " or ".join(words.get(name, name) for name in types) or expected


def _field_docs(settings: type) -> dict[str, str]:
    """The docstring under each field, of the class itself or the one it inherits from."""
    docs: dict[str, str] = {}
    for base in reversed(inspect.getmro(settings)):
        if dataclasses.is_dataclass(base):
            parsed = docstring_parser.parse_from_object(base)
            docs |= {param.arg_name: param.description or "" for param in parsed.params}
    return docs
