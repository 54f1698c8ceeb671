"""Shapes declared by letters: `o i` is the shape of a matrix, and `o` is the same size wherever it stands."""

import math
from collections.abc import Iterable, Mapping

from lotnet.records import WrongType

Shape = tuple[int, ...]  # of one image or feature vector, without the batch


def match(declared: str, shape: Shape, sizes: dict[str, int], name: str) -> None:
    """Compare a shape with its declaration, and add the sizes of new letters. Raises `WrongType` if they differ.

    A dimension is a product of letters and digits: `2p` is an even size, and `hwo` one row for each pixel and channel.
    At most one letter of it is new. A declaration that ends in `...` says nothing about the dimensions after it.

    >>> sizes = {"h": 4, "w": 3}
    >>> match("hwo 2p", (24, 10), sizes, "matrix")
    >>> sizes["o"], sizes["p"]
    (2, 5)
    """
    words = declared.split()
    if words[-1:] == ["..."]:
        words.pop()
        shape = shape[: len(words)]
    if len(words) != len(shape) or not all(_fits(word, size, sizes) for word, size in zip(words, shape, strict=True)):
        known = ", ".join(f"{letter} = {sizes[letter]}" for letter in sorted(set(declared) & sizes.keys()))
        raise WrongType(f"{name} must have the shape {declared}{f' with {known}' if known else ''}, not {list(shape)}")


def _fits(word: str, size: int, sizes: dict[str, int]) -> bool:
    new = [letter for letter in word if letter.isalpha() and letter not in sizes]
    known = math.prod(int(letter) if letter.isdigit() else sizes.get(letter, 1) for letter in word)
    if not new:
        return size == known
    (letter,) = new
    sizes[letter], rest = divmod(size, known)
    return rest == 0 and size > 0


def solve(declared: Mapping[str, str], shapes: Mapping[str, Shape], sizes: Mapping[str, int]) -> dict[str, int]:
    """The size of every letter in the declared shapes. `sizes` are known before, from a module's settings."""
    _same_names(declared, shapes)
    found = dict(sizes)
    for name, shape in declared.items():
        match(shape, shapes[name], found, name)
    return found


def _same_names(declared: Iterable[str], found: Iterable[str]) -> None:
    for name in sorted(set(declared) ^ set(found)):
        raise WrongType(f"the tensor {name!r} is {'missing' if name in declared else 'unknown'}")
