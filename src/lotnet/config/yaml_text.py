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
    except (yaml.YAMLError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        raise ValueError(f" near line {where.line + 1}" if where else "") from None


class _Loader(yaml.SafeLoader):
    """Booleans and floats as in YAML 1.2. Under 1.1 the key `on` is true, and 3e-3 is text."""


_BOOL, _FLOAT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOL, _FLOAT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver(
    _FLOAT, re.compile(r"(?:[-+]?(?:\d+\.\d*|\.?\d+)(?:[eE][-+]?\d+)?|[-+]?\.inf|\.nan)$"), list("-+.0123456789")
)
