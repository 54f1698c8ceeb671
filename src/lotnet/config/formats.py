"""Format versions of stored settings, and the settings that have been renamed since format 1."""

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lotnet.errors import InputError

FORMAT = 3
READABLE = (1, 2, 3)


@dataclass(frozen=True)
class Renaming:
    """What became of a setting of an earlier format."""

    name: str | None
    """Its current name; None for a setting that was removed and never changed the result of a run."""
    last_format: int
    """The last format with the old name."""
    values: Mapping[bool, str] = field(default_factory=dict)
    """The current value for each old value. Empty if values have not changed."""

    def translate(self, value: Any, old: str, source: str) -> Any:
        """The current value. `value` is of the old type, or text from a command line."""
        if not self.values or value is None:
            return value
        typed = {"true": True, "false": False}.get(value) if isinstance(value, str) else value
        if not isinstance(typed, bool):
            raise InputError(f"{source}: {old} cannot be {value!r}: give true or false")
        return self.values[typed]


RENAMED: dict[str, Renaming] = {
    "labelled": Renaming("labeled", 1),
    "unlabelled": Renaming("unlabeled", 1),
    "trainer.share_polar": Renaming(None, 1),
    "trainer.share_orthogonalization": Renaming(None, 3),
    "data.distort": Renaming("data.augment", 2, {False: "standard", True: "strong"}),
}
"""Settings of earlier formats, by their old names.

Stored files are translated silently, and recipes and options with a warning. Fingerprints use the names and values of
format 1.
"""

FIRST_DEFAULTS: dict[str, dict[str, Any]] = {"LogitAnnealing": {"offset": 2.0, "temperature": 0.75}}
"""Defaults that have changed since a setting exists, by class and setting: the first default of each.

Files hold every setting, so a run keeps its values. Fingerprints leave out settings at their first defaults.
"""


def check_format(content: dict[str, Any], source: str, remedy: str) -> None:
    """Refuse a file whose format version this lotnet does not read."""
    found = content.get("format")
    if type(found) is not int or found not in READABLE:
        version = "no format version" if found is None else f"format {found}"
        raise InputError(f"{source} has {version}, this lotnet reads {READABLE[0]} to {READABLE[-1]}: {remedy}")


def current_names(content: dict[str, Any], source: str, warn: bool = False) -> dict[str, Any]:
    """Translate settings to their current names and values, and drop the key `format`; without it they are format 1."""
    settings = copy.deepcopy(content)
    version = settings.pop("format", 1)
    for old, renaming in RENAMED.items():
        *groups, key = old.split(".")
        group = _group(settings, groups)
        if version > renaming.last_format or group is None or key not in group:
            continue
        value = renaming.translate(group.pop(key), old, source)
        if warn:
            warn_renamed(old, renaming.name, source)
        if renaming.name is None:
            continue
        *groups, key = renaming.name.split(".")
        group = _group(settings, groups, make=True)
        if group is None or key in group:
            raise InputError(f"{source} sets both {old} and {renaming.name}, which are the same: keep {renaming.name}")
        group[key] = value
    return settings


def current_settings(given: Mapping[str, Any], source: str, dashes: str = "") -> dict[str, Any]:
    """Translate settings by dotted name to their current names and values. Warns about old names."""
    current = {}
    for name, value in given.items():
        if name not in RENAMED:
            current[name] = value
            continue
        renaming = RENAMED[name]
        warn_renamed(f"{dashes}{name}", renaming.name and f"{dashes}{renaming.name}", source)
        if renaming.name is not None:
            current[renaming.name] = renaming.translate(value, name, source)
    return current


def warn_renamed(old: str, new: str | None, source: str) -> None:
    """Warn that a setting was renamed or removed. The command line prints the warning as one line on stderr."""
    advice = f"is now {new}: the old spelling" if new else "has no effect any more: it"
    warnings.warn(f"{source}: {old} {advice} will be refused by the next version", FutureWarning, stacklevel=3)


def in_format_1(name: str, value: Any) -> tuple[str, Any]:
    """Name and value of a setting in format 1. A setting or value that format 1 did not have stays as it is."""
    for old, renaming in RENAMED.items():
        before = {new: was for was, new in renaming.values.items()}
        if renaming.name == name and (not before or value in before):
            return old, before.get(value, value) if before else value
    return name, value


def _group(settings: dict[str, Any], path: list[str], make: bool = False) -> dict[str, Any] | None:
    """The dict at that path; None if there is none. With `make`, missing dicts are made."""
    group: Any = settings
    for name in path:
        if make:
            group.setdefault(name, {})
        group = group.get(name)
        if not isinstance(group, dict):
            return None
    return group
