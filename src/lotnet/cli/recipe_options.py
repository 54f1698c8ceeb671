"""Command lines with a recipe and settings on top of it, for `train`, `selftrain` and `ablate`.

A command line has two kinds of words: the verb's own options, which the verb's parser reads, and settings such as
`--model.depth 20`, which `lotnet.config` reads. The known settings depend on the recipe and on other settings, so they
are added to the parser only for `--help`.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from jsonargparse import Namespace

from lotnet.cli.arguments import Parser
from lotnet.config import Settings, recipe_settings, recipes
from lotnet.config.formats import current_settings
from lotnet.config.settings import KINDS, group_types, type_of
from lotnet.errors import InputError
from lotnet.spelling import nearest
from lotnet.training.resolve import resolved

_HELP = ("-h", "--help")


@dataclass(frozen=True)
class CommandLine:
    """A command line, divided into options of the verb and settings."""

    parser: Parser
    options: Namespace
    """The verb's own options."""
    given: dict[str, str | None]
    """Settings by dotted name, as text; None where the value is missing."""
    names: tuple[str, ...]
    """All options that were given, as they were written."""
    asks_for_help: bool

    def allow_only(self, *allowed: str) -> None:
        """Refuse all other options, because a resumed run keeps its settings."""
        for name in self.names:
            if name not in allowed:
                raise InputError(
                    f"--resume continues a run with its own settings: leave {name} out, or start a new run without "
                    "--resume"
                )

    def recipe(self, default: Callable[[str], str]) -> str:
        """The recipe of `--config`, or the default one for the data set."""
        return self.options.config or default(self.given.get("data.name") or "digits")

    def settings(self, recipe: str, base: Mapping[str, str] | None = None, extra: type | None = None) -> Settings:
        """The recipe's settings, overridden by `base` and then by the command line.

        With `--help`, prints all settings, with the values of recipe and base as defaults, and ends the program.
        """
        prog = self.parser.prog
        with _warnings_on_stderr():
            settings = recipe_settings(recipe, extra)
            given = {**(base or {}), **current_settings(self.given, prog, "--")}
        settings = settings.with_kinds(given, prog)
        if self.asks_for_help:
            shown = {name: text for name, text in (base or {}).items() if name not in self.given}
            _add_settings(self.parser, settings.override(shown, prog))
            self.parser.print_help()
            raise SystemExit(0)
        settings = settings.override(self._checked(given, settings.known()), prog)
        return resolved(settings, given, self.options.device)

    def _checked(self, given: Mapping[str, str | None], known: Mapping[str, Any]) -> dict[str, str]:
        """Check that every given setting is known and has a value."""
        checked = {}
        for name, text in given.items():
            if type_of(name, known) is None:
                options = [*self.parser.options(), *(f"--{other}" for other in known)]
                raise InputError(f"{self.parser.prog} does not know --{name}{nearest(f'--{name}', options)}")
            if text is None:
                raise InputError(
                    f"{self.parser.prog}: argument --{name}: expected one argument: see `{self.parser.prog} --help`"
                )
            checked[name] = text
        return checked


def parse(parser: Parser, arguments: list[str]) -> CommandLine:
    """Divide a command line into options and settings, and parse the options."""
    own, given, names = parser.options(), dict[str, str | None](), list[str]()
    kept, words = [], list(arguments)
    while words:
        word = words.pop(0)
        option, equals, value = word.partition("=")
        if option.startswith("--"):
            names.append(option)
        if option in own or not option.startswith("--") or option == "--":
            kept.append(word)
        elif equals:
            given[option[2:]] = value
        else:
            given[option[2:]] = words.pop(0) if words and not words[0].startswith("--") else None
    asks_for_help = any(word in _HELP for word in kept)
    options = parser.read([word for word in kept if word not in _HELP])
    return CommandLine(parser, options, given, tuple(names), asks_for_help)


def add_recipe_options(parser: Parser) -> None:
    """Add the options of every verb that starts from a recipe."""
    parser.add_argument(
        "--config",
        type=str | None,
        default=None,
        help=f"A YAML file, for instance a run's config.yaml, or one of {', '.join(recipes())}.",
    )
    parser.add_common("device", "json")


def _add_settings(parser: Parser, settings: Settings) -> None:
    """Add every setting as an option, for --help."""
    values = settings.values
    if settings.extra is not None:
        parser.add_fields(settings.extra, "Self-training", values=values)
    common = ("seed", "limit", "preset", "init")
    parser.add_common(*common)
    parser.set_defaults({name: values[name] for name in common if name in values})
    for group, made in group_types(settings.kinds).items():
        if group in KINDS:
            parser.add_argument(
                f"--{group}.kind",
                type=Literal[tuple(KINDS[group])],
                default=settings.kinds[group],
                help=f"The kind of {group}, which decides which settings --{group}.* exist.",
            )
        title = f"{group.capitalize()} ({settings.kinds[group]})" if group in KINDS else group.capitalize()
        parser.add_fields(made, title, group, values)


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """Print warnings about old spellings as one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FutureWarning)
        yield
    for warning in caught:
        sentence = str(warning.message)
        print(sentence if sentence.startswith("lotnet ") else f"lotnet: {sentence}", file=sys.stderr)
