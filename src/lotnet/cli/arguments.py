"""Command-line parser: options typed by annotations, help from docstrings, errors in one sentence."""

import dataclasses
import inspect
import re
from argparse import SUPPRESS
from collections.abc import Mapping
from typing import Any, NoReturn

import docstring_parser
from jsonargparse import ArgumentParser, Namespace

from lotnet.config.reader import field_types
from lotnet.config.settings import PresetName
from lotnet.errors import InputError
from lotnet.spelling import nearest

COMMON: dict[str, dict[str, Any]] = {
    "seed": {"type": int, "default": 0, "help": "Seed of all random numbers."},
    "limit": {"type": int | None, "default": None, "help": "Number of images used from each split; by default all."},
    "preset": {
        "type": PresetName | None,
        "default": None,
        "help": "Size of network and length of training for images of a folder; auto is small on a CPU, else large.",
    },
    "init": {
        "type": str | None,
        "default": None,
        "help": "Model to start from: a run, a packed model, or a shipped name. Its last layer is replaced.",
    },
    "device": {"type": str, "default": "auto", "help": "cpu, cuda, cuda:1, ...; auto takes a GPU if there is one."},
    "json": {"action": "store_true", "help": "Print one JSON object on stdout, everything else on stderr."},
}
"""Options that mean the same under every verb."""


class Parser(ArgumentParser):
    """jsonargparse with errors as `InputError`: one sentence that names the nearest valid spelling."""

    def __init__(self, prog: str, description: str = "") -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, exit_on_error=False)

    def add_common(self, *names: str) -> None:
        for name in names:
            self.add_argument(f"--{name}", **COMMON[name])

    def add_fields(self, settings: type, title: str, group: str = "", values: Mapping[str, Any] | None = None) -> None:
        """Add one option for each field of a dataclass: --GROUP.FIELD, or --FIELD without a group.

        Defaults are `values` by dotted name, and the dataclass's own where `values` has none.
        """
        options, docs = self.add_argument_group(title), _field_docs(settings)
        fields = {field.name: field for field in dataclasses.fields(settings)}
        for name, kind in field_types(settings, group).items():
            field = fields[name.rpartition(".")[2]]
            made = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            default = (values or {}).get(name, made)
            options.add_argument(f"--{name}", type=kind, default=default, help=docs.get(field.name, ""))

    def options(self) -> list[str]:
        """All options as they are written, for instance `--out`."""
        return [option for action in self._actions for option in action.option_strings]

    def read(self, arguments: list[str]) -> Namespace:
        """Parse the command line. Returns typed values, with defaults where no value was given."""
        parsed = self.parse_args(arguments)
        for action in self._actions:  # jsonargparse accepts null for every option that may be left out
            if action.default not in (None, SUPPRESS) and parsed[action.dest] is None:
                raise InputError(f"{self.prog}: {action.dest} cannot be null: give a value or leave it out")
        return parsed

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise InputError(self._sentence(message)) from None

    def _sentence(self, message: str) -> str:
        words = " ".join(message.split())
        if found := re.match(r"unrecognized arguments?: (\S+)", words):
            option = found[1].split("=")[0]
            return f"{self.prog} does not know {option}{nearest(option, self.options())}"
        if found := re.match(r'Parser key "(.+?)": (.*) (?:Got|Given) value: (.*)', words):
            return f"{self.prog}: {found[1]} cannot be {found[3]!r}: give {_wanted(found[2])}"
        words = re.sub(r"^the following arguments are required: (.*)", r"\1 must be given", words)
        return f"{self.prog}: {words}: see `{self.prog} --help`"


def _wanted(expected: str) -> str:
    """The values that jsonargparse expects, in words."""
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "NoneType": "null"}
    if choices := re.search(r"Literal\[(.*?)\]", expected):
        return "one of " + choices[1].replace("'", "")
    types = dict.fromkeys(re.findall(r"<class '(\w+)'>", expected.split("Errors:")[0]))
    return " or ".join(words.get(name, name) for name in types) or expected


def _field_docs(settings: type) -> dict[str, str]:
    """The docstring under each field of a dataclass and its base classes."""
    docs: dict[str, str] = {}
    for base in reversed(inspect.getmro(settings)):
        if dataclasses.is_dataclass(base):
            parsed = docstring_parser.parse_from_object(base)
            docs |= {param.arg_name: param.description or "" for param in parsed.params}
    return docs
