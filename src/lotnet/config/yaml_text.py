"""Read YAML, with the booleans and floats of YAML 1.2 and errors of one sentence."""

import re
from typing import Any

import yaml

from lotnet.errors import InputError


def read_yaml(text: str, source: str) -> dict[str, Any]:
    """Parse a YAML text as a dict of settings. Error messages name `source`."""
    try:
        settings = load_yaml(text)
    except ValueError as error:
        raise InputError(f"{source} is not valid YAML{error}: write `key: value` lines") from None
    if not isinstance(settings, dict):
        raise InputError(f"{source} holds no settings: write `key: value` lines")
    return settings


def load_yaml(text: str) -> Any:
    """Parse any YAML value. Raises a `ValueError` that names the line if the text is not YAML."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, AttributeError, TypeError) as error:
        where = getattr(error, "problem_mark", None)
        raise ValueError(f" near line {where.line + 1}" if where else "") from None


_MOST_ALIASES = 16
"""Aliases that a text may use. Lists of aliases of lists of aliases grow exponentially: ten levels fill the memory."""
_DEEPEST = 32
"""Levels of lists and mappings within one another."""


class _Loader(yaml.SafeLoader):
    """Booleans and floats as in YAML 1.2. Under 1.1 the key `on` is true, and 3e-3 is text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._aliases = self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        mark = self.peek_event().start_mark
        self._aliases += self.check_event(yaml.AliasEvent)
        if self._aliases > _MOST_ALIASES:
            raise yaml.MarkedYAMLError(problem=f"more than {_MOST_ALIASES} aliases", problem_mark=mark)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"more than {_DEEPEST} levels", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


_BOOL, _FLOAT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOL, _FLOAT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver(
    _FLOAT, re.compile(r"(?:[-+]?(?:\d+\.\d*|\.?\d+)(?:[eE][-+]?\d+)?|[-+]?\.inf|\.nan)$"), list("-+.0123456789")
)
