"""Format versions of stored settings, and the settings that have been renamed since format 1."""

import copy
import warnings
from typing import Any

from lotnet.errors import InputError

FORMAT = 2
READABLE = (1, 2)
RENAMED: dict[str, str | None] = {
    "labelled": "labeled",
    "unlabelled": "unlabeled",
    "trainer.share_polar": "trainer.share_orthogonalization",
}
"""Maps the name of a setting in format 1 to its current name.

The value is None for a setting that was removed and never changed the result of a run. Stored files are translated
silently, and recipes and options with a warning. Fingerprints use the names of format 1.
"""
_NAMES_IN_FORMAT_1 = {new: old for old, new in RENAMED.items() if new is not None}


def check_format(content: dict[str, Any], source: str, remedy: str) -> None:
    """Refuse a file whose format version this lotnet does not read."""
    found = content.get("format")
    if type(found) is not int or found not in READABLE:
        version = "no format version" if found is None else f"format {found}"
        raise InputError(f"{source} has {version}, this lotnet reads {' and '.join(map(str, READABLE))}: {remedy}")


def current_names(content: dict[str, Any], source: str, warn: bool = False) -> dict[str, Any]:
    """Translate settings to their current names, and drop the key `format`. Format 2 has the current names already."""
    settings = copy.deepcopy(content)
    if settings.pop("format", 1) == FORMAT:
        return settings
    for old, new in RENAMED.items():
        *groups, key = old.split(".")
        group = _group(settings, groups)
        if group is None or key not in group:
            continue
        value = group.pop(key)
        if warn:
            warn_renamed(old, new, source)
        if new is None:
            continue
        *groups, key = new.split(".")
        group = _group(settings, groups, make=True)
        if group is None or key in group:
            raise InputError(f"{source} sets both {old} and {new}, which are the same: keep {new}")
        group[key] = value
    return settings


def current_name(name: str, source: str, dashes: str = "") -> str | None:
    """The current name of a setting; None if it was removed. Warns if `name` is an old name."""
    if name not in RENAMED:
        return name
    new = RENAMED[name]
    warn_renamed(f"{dashes}{name}", new and f"{dashes}{new}", source)
    return new


def warn_renamed(old: str, new: str | None, source: str) -> None:
    """Warn that a setting was renamed or removed. The command line prints the warning as one line on stderr."""
    advice = f"is now {new}: the old spelling" if new else "has no effect any more: it"
    warnings.warn(f"{source}: {old} {advice} will be refused by the next version", FutureWarning, stacklevel=3)


def name_in_format_1(name: str) -> str:
    return _NAMES_IN_FORMAT_1.get(name, name)


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
