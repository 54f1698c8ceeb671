"""Suggestions for misspelled names, and numbers with their nouns."""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message: the known name that was probably meant, or the names to choose from.

    Whole names are compared, and also the parts after their last dot, so `--depth` finds `--model.depth`.
    """
    known = list(known)
    for setting in (f"{word}.name", f"{word}.kind"):  # `--data PATH` wants --data.name, `--loss emma` --loss.kind
        if setting in known:
            return f": did you mean {setting}?"
    by_part: dict[str, str] = {}
    for name in known:
        by_part.setdefault(name, name)
        by_part.setdefault(name.lstrip("-").rsplit(".", 1)[-1], name)
    for part in (word, word.lstrip("-").rsplit(".", 1)[-1]):
        if close := difflib.get_close_matches(part, by_part, n=1, cutoff=0.6):
            return f": did you mean {by_part[close[0]]}?"
    group = word.split(".")[0] + "."
    names = list(dict.fromkeys(by_part.values()))
    choices = [name for name in names if name.startswith(group)] or names
    return f": choose one of {', '.join(choices)}" if len(choices) <= 16 else ": --help lists what there is"


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "epoch"), counted(1200, "image")
    ('1 epoch', '1,200 images')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
