"""The text of `lotnet VERB --help`: what the verb does, two examples, and its options group by group.

jsonargparse alone would print types as Python spells them, and a usage line with all sixty options.
"""

import shutil
import textwrap
from argparse import SUPPRESS, Action
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

from lotnet.certification.plain import in_255ths

_COLUMN = 28
"""Where descriptions begin."""
_NARROW, _WIDE = 80, 100
_PLACEHOLDERS = {int: "N", float: "X", bool: "{true,false}"}


def render(prog: str, about: str, examples: Iterable[str], groups: Mapping[str, list[Action]]) -> str:
    """The help of a verb, as wide as the terminal within 80 and 100 columns. `groups` are its arguments by title."""
    width = min(max(shutil.get_terminal_size().columns, _NARROW), _WIDE) - 1
    words = [_words(action) for actions in groups.values() for action in actions if not action.option_strings]
    parts = [
        textwrap.fill(about, width),
        "\n".join(["Examples:", *(f"  {example}" for example in examples)]),
        f"Usage: {' '.join([prog, *words, '[OPTION ...]'])}",
    ]
    for title, actions in groups.items():
        if actions:
            parts.append("\n".join([f"{title}:", *(_entry(action, width) for action in actions)]))
    return "\n\n".join(parts) + "\n"


def placeholder(kind: Any, name: str) -> str:
    """What stands for a value of this type: {a,b}, N, X, or else the option's name in capitals."""
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    if get_origin(kind) is dict:
        return "{NAME: X}"
    if members := [member for member in get_args(kind) if member is not type(None)]:
        return placeholder(members[0], name)
    return _PLACEHOLDERS.get(kind, name.lstrip("-").replace("-", ".").rpartition(".")[2].upper())


def bulleted(title: str, lines: Mapping[str, str]) -> str:
    """A help text with one line for each choice."""
    return "\n".join([title, *(f"{name}: {about}" for name, about in lines.items())])


def _entry(action: Action, width: int) -> str:
    """One argument: how it is written, and in a second column what it does. Lines of the help text stay apart."""
    name = ", ".join(action.option_strings)
    words = f"  {name} {_words(action)}".rstrip() if name else f"  {_words(action)}"
    first, *others = (action.help or "").splitlines() or [""]
    about = [f"{first.strip()}{_default(action)}", *(line.strip() for line in others)]
    column = " " * _COLUMN
    lines = []
    for n, line in enumerate(about):
        hanging = column if n == 0 else f"{column}    "
        start = column if n == 0 else f"{column}  "
        lines += textwrap.wrap(line, width, initial_indent=start, subsequent_indent=hanging, break_on_hyphens=False)
    if len(words) < _COLUMN - 1 and lines:
        lines[0] = words.ljust(_COLUMN) + lines[0][_COLUMN:]
        return "\n".join(lines)
    return "\n".join([words, *lines])


def _words(action: Action) -> str:
    """The placeholders after an option's name, as in `X [X ...]`."""
    if action.nargs == 0:
        return ""
    name = str(action.metavar or action.dest.upper())
    return {"?": f"[{name}]", "+": f"{name} ...", "*": f"[{name} ...]"}.get(str(action.nargs), name)


def _default(action: Action) -> str:
    value = action.default
    if value is None or value is SUPPRESS or action.nargs == 0 or value == {}:
        return ""
    if isinstance(value, list):
        return f" (default: {' '.join(map(_shown, value))})"
    return f" (default: {_shown(value)})"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        # Radii are written as papers write them.
        of_255 = abs(value * 255 - round(value * 255)) < 1e-9 and round(value, 4) != value
        return in_255ths(value) if of_255 else f"{value:g}"
    return str(value)
