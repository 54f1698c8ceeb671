"""Command-line parser: options typed by annotations, help from docstrings, errors in one sentence."""

import dataclasses
import inspect
import re
from argparse import SUPPRESS, Action
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import docstring_parser
from jsonargparse import ArgumentParser, Namespace

from lotnet.cli.help_text import placeholder, render
from lotnet.config.reader import field_types
from lotnet.config.settings import PresetName
from lotnet.data import PREFIX
from lotnet.errors import InputError
from lotnet.spelling import nearest

COMMON: dict[str, dict[str, Any]] = {
    "seed": {"type": int, "default": 0, "help": "Seed of all random numbers."},
    "limit": {
        "type": int | None,
        "default": None,
        "help": "Use only N images of each split: random ones, but always the same.",
    },
    "preset": {
        "type": PresetName | None,
        "default": None,
        "help": "Size of network and length of training for a folder of images. auto: small on a CPU, large on a GPU.",
    },
    "init": {
        "type": str | None,
        "default": None,
        "metavar": "MODEL",
        "help": "Start from this model: a run, a packed model, or a shipped name. Its last layer is replaced.",
    },
    "device": {"type": str, "default": "auto", "help": "cpu, cuda, cuda:1, ...; auto uses a GPU if there is one."},
    "json": {"action": "store_true", "help": "Print one JSON object on stdout, and everything else on stderr."},
}
"""Options that mean the same under every verb."""

COMMON_TITLE = "Common options"


class Parser(ArgumentParser):
    """jsonargparse with help that starts with examples, and with errors as `InputError`.

    An error is one sentence that names the nearest valid spelling.
    """

    def __init__(self, prog: str, description: str = "", examples: tuple[str, ...] = ()) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, exit_on_error=False, add_help=False)
        self.examples = examples
        self.takes_data = False
        """Whether the verb has the setting --data.name."""
        self.add_argument("-h", "--help", action="help", group=COMMON_TITLE, help="Show this help and exit.")

    def add_argument(self, *names: str, group: str = "", **settings: Any) -> Action:
        """Add an argument to the group of `--help` with that title."""
        kind = settings.get("type")
        if kind is not None and "choices" not in settings:
            settings.setdefault("metavar", placeholder(kind, names[0]))
        if not group:
            return super().add_argument(*names, **settings)
        found = next((known for known in self._action_groups if known.title == group), None)
        return (found or self.add_argument_group(group)).add_argument(*names, **settings)

    def add_common(self, *names: str, group: str = COMMON_TITLE) -> None:
        for name in names:
            self.add_argument(f"--{name}", group=group, **COMMON[name])

    def add_fields(self, settings: type, title: str, group: str = "", values: Mapping[str, Any] | None = None) -> None:
        """Add one option for each field of a dataclass: --GROUP.FIELD, or --FIELD without a group.

        Defaults are `values` by dotted name, and the dataclass's own where `values` has none.
        """
        docs, known = field_docs(settings), self.options()
        fields = {field.name: field for field in dataclasses.fields(settings)}
        for name, kind in field_types(settings, group).items():
            field = fields[name.rpartition(".")[2]]
            made = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            default = (values or {}).get(name, made)
            if f"--{name}" not in known:
                self.add_argument(f"--{name}", group=title, type=kind, default=default, help=docs.get(field.name, ""))

    def format_help(self, formatter: Any = None) -> str:
        """The text of --help. Options that all verbs share come last."""
        groups = {
            str(group.title): [action for action in group._group_actions if action.help != SUPPRESS]
            for group in self._action_groups
        }
        arguments, options = groups.pop("positional arguments"), groups.pop("options")
        common = groups.pop(COMMON_TITLE)
        shown = {"Arguments": arguments, "Options": options, **groups, COMMON_TITLE: common[1:] + common[:1]}
        return render(self.prog, self.description or "", self.examples, shown)

    def options(self) -> list[str]:
        """All options as they are written, for instance `--out`."""
        return [option for action in self._actions for option in action.option_strings]

    def own_spelling(self, option: str) -> str:
        """The option as this parser spells it, if only dashes and underscores differ. Both spellings are accepted."""
        same = (own for own in self.options() if own.replace("-", "_") == option.replace("-", "_"))
        return next(same, option)

    def read(self, arguments: list[str]) -> Namespace:
        """Parse the command line. Returns typed values, with defaults where no value was given."""
        parsed = self.parse_args(list(self._in_own_spelling(arguments)))
        for action in self._actions:  # jsonargparse accepts null for every option that may be left out
            if action.default not in (None, SUPPRESS) and parsed[action.dest] is None:
                raise InputError(f"{self.prog}: {action.dest} cannot be null: give a value or leave it out")
        return parsed

    def _in_own_spelling(self, arguments: list[str]) -> Iterator[str]:
        words = iter(arguments)
        for word in words:
            if word == "--":  # what follows are no options
                yield from (word, *words)
                return
            option, equals, value = word.partition("=")
            yield self.own_spelling(option) + equals + value if word.startswith("--") else word

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise InputError(self._sentence(message)) from None

    def _meant(self, word: str, option: str) -> str:
        """The end of an error message about a word that is not known."""
        if self.takes_data and not word.startswith("-"):
            if word.startswith(PREFIX):
                return f": for the images in that folder, write --data.name {word}"
            if Path(word).expanduser().is_dir():
                return f": for the images in that folder, write --data.name {PREFIX}{word}"
        return nearest(option, self.options())

    def _sentence(self, message: str) -> str:
        words = " ".join(message.split())
        if found := re.match(r"unrecognized arguments?: (\S+)", words):
            option = found[1].split("=")[0]
            return f"{self.prog} does not know {option}{self._meant(found[1], option)}"
        if found := re.match(r'Parser key "(.+?)": (.*) (?:Got|Given) value: (.*)', words):
            return f"{self.prog}: {found[1]} cannot be {found[3]!r}: give {_wanted(found[2])}"
        words = re.sub(r"^the following arguments are required: (.*)", r"\1 must be given", words)
        return f"{self.prog}: {words}: see `{self.prog} --help`"


def _wanted(expected: str) -> str:
    """The values that jsonargparse expects, in words."""
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}
    if choices := re.search(r"Literal\[(.*?)\]", expected):
        return "one of " + choices[1].replace("'", "")
    types = dict.fromkeys(re.findall(r"<class '(\w+)'>", expected.split("Errors:")[0]))
    return " or ".join(words.get(name, name) for name in types if name != "NoneType") or expected


def field_docs(settings: type) -> dict[str, str]:
    """The docstring under each field of a dataclass and its base classes."""
    docs: dict[str, str] = {}
    for base in reversed(inspect.getmro(settings)):
        if dataclasses.is_dataclass(base):
            parsed = docstring_parser.parse_from_object(base)
            docs |= {param.arg_name: " ".join((param.description or "").split()) for param in parsed.params}
    return docs
