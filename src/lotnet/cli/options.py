"""Checks and displays that several verbs share."""

from fractions import Fraction
from typing import Any

from lotnet.errors import InputError


def check_split(name: str) -> None:
    if name not in ("test", "train"):
        raise InputError(f"there is no split {name}: choose test or train")


def check_counts(options: Any, **least: int) -> None:
    """Refuse options below the least that makes sense, before any work is done."""
    for name, limit in least.items():
        if options[name] < limit:
            raise InputError(f"--{name} cannot be {options[name]}: give {limit} or more")


def parse_radius(text: str) -> float:
    try:
        value = float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise InputError(f"a radius is a number or a fraction such as 36/255, not {text!r}") from None
    if value < 0:
        raise InputError(f"a radius cannot be negative, as {text} is: give 0 or more")
    return value
