"""Command lines with a recipe and settings on top of it, for `train`, `selftrain` and `ablate`.

A command line has two kinds of words: the verb's own options, which the verb's parser reads, and settings such as
`--model.depth 20`, which `lotnet.config` reads. The known settings depend on the recipe and on other settings, so they
are added to the parser only for `--help`.
"""

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from jsonargparse import Namespace

from lotnet.cli.arguments import Parser
from lotnet.cli.help_text import bulleted
from lotnet.config import Settings, recipe_settings, recipes
from lotnet.config.formats import current_settings
from lotnet.config.settings import KINDS, group_types, type_of
from lotnet.errors import InputError
from lotnet.parametrizations import PARAMETRIZATIONS
from lotnet.spelling import nearest
from lotnet.training.resolve import resolved

_HELP = ("-h", "--help")
RUN = "The run"
"""Title in --help of the options that say what is run, and where it is kept."""


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
            mine = current_settings(self.given, prog, "--")
        base = base or {}
        given = {**base, **mine}
        settings = settings.with_kinds(given, prog)
        if self.asks_for_help:
            shown = {name: text for name, text in base.items() if name not in self.given}
            # Its options are shown, as are those of the kinds.
            shown |= {name: text for name, text in given.items() if name == "model.parametrization" and text}
            shown |= self._chosen(settings, given, mine, base)
            _add_settings(self.parser, settings.override(shown, prog))
            self.parser.print_help()
            raise SystemExit(0)
        settings = settings.override(self._checked(given, settings.known()), prog)
        return resolved(settings, mine, self.options.device, fixed=base)

    def _chosen(
        self, settings: Settings, given: Mapping[str, str | None], mine: Mapping[str, Any], base: Mapping[str, str]
    ) -> dict[str, Any]:
        """What the preset of a folder or the model of --init chooses, to be shown as defaults in the help.

        A folder that cannot be read leaves the values of the recipe.
        """
        try:
            before = settings.override(self._checked(given, settings.known()), self.parser.prog)
            after = resolved(before, mine, self.options.device, fixed=base)
        except InputError:
            return {}
        changed = {name: value for name, value in after.values.items() if before.values.get(name) != value}
        return {name: value for name, value in changed.items() if name != "preset" and name not in given}

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
            option = parser.own_spelling(option)
            names.append(option)
        if option in own or not option.startswith("--") or option == "--":
            kept.append(word)
        elif equals:
            given[_setting(option)] = value
        else:
            given[_setting(option)] = words.pop(0) if words and not words[0].startswith("--") else None
    asks_for_help = any(word in _HELP for word in kept)
    options = parser.read([word for word in kept if word not in _HELP])
    return CommandLine(parser, options, given, tuple(names), asks_for_help)


def _setting(option: str) -> str:
    """The setting that an option names: no setting has a dash."""
    return option[2:].replace("-", "_")


def add_recipe_options(parser: Parser, out: str = "Run directory; by default runs/RECIPE-N.") -> None:
    """Add the options of every verb that starts from a recipe."""
    parser.takes_data = True
    by_data: dict[str, list[str]] = {}
    for name in recipes():
        data, _, setting = name.partition("/")
        by_data.setdefault(data, []).append(setting)
    parser.add_argument(
        "--config",
        type=str | None,
        default=None,
        metavar="RECIPE",
        help=bulleted(
            "A recipe, or a YAML file such as the config.yaml of a run. Recipes are DATA/NAME:",
            {f"{data}/": ", ".join(names) for data, names in by_data.items()},
        ),
        group=RUN,
    )
    parser.add_argument("--out", type=str | None, default=None, metavar="DIR", help=out, group=RUN)
    parser.add_common("device", "json")


def _add_settings(parser: Parser, settings: Settings) -> None:
    """Add every setting as an option, for --help."""
    values = settings.values
    if settings.extra is not None:
        parser.add_fields(settings.extra, "Self-training", values=values)
    parser.add_common("init", "preset", group=RUN)
    parser.add_common("limit", "seed")
    parser.set_defaults({name: values[name] for name in ("init", "preset", "limit", "seed") if name in values})
    for group, made in group_types(settings.kinds).items():
        title = group.capitalize()
        if group in KINDS:
            kind = settings.kinds[group]
            title += f" ({kind})"
            about = f"The {group}. `{parser.prog} --{group}.kind NAME --help` shows the options of another."
            _add_choice(parser, f"{group}.kind", about, KINDS[group], kind, title)
        if group == "model":
            _add_parametrization(parser, values, title)
        parser.add_fields(made, title, group, values)


def _add_parametrization(parser: Parser, values: Mapping[str, Any], title: str) -> None:
    """The choice of a parametrization, and the settings of the chosen one."""
    name = values.get("model.parametrization", "lot")
    _add_choice(parser, "model.parametrization", "How kernels become orthogonal.", PARAMETRIZATIONS, name, title)
    if name in PARAMETRIZATIONS:
        given = {f"model.options.{key}": value for key, value in values.get("model.options", {}).items()}
        parser.add_fields(PARAMETRIZATIONS[name], title, "model.options", given)


def _add_choice(parser: Parser, name: str, about: str, table: Mapping[str, type], chosen: str, title: str) -> None:
    """An option whose value is a name in a table of classes, each with the first sentence of its docstring."""
    abouts = {key: re.split(r"(?<=\.)\s", inspect.getdoc(entry) or "")[0] for key, entry in table.items()}
    parser.add_argument(
        f"--{name}", type=Literal[tuple(table)], default=chosen, help=bulleted(about, abouts), group=title
    )


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """Print warnings about old spellings as one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FutureWarning)
        yield
    for warning in caught:
        sentence = str(warning.message)
        print(sentence if sentence.startswith("lotnet ") else f"lotnet: {sentence}", file=sys.stderr)
