"""Counter-based random numbers: each is a pure function of a key and an index, without the state of a generator.

Invariants:

* numbers are the same on every device and in every version of PyTorch: they need only integer arithmetic and a stable
  sort;
* the number of sample n does not depend on the process, or on which numbers were drawn before;
* different keys give unrelated streams.

Not suitable for cryptography.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

Word = TypeVar("Word", int, Tensor)

_MASK = 0xFFFFFFFF
_STEP = 0x9E3779B9  # 2^32 / golden ratio: consecutive key words never cancel


def bits(index: Tensor, *key: int) -> Tensor:
    """Draw 32 random bits, as int64 in [0, 2^32), for each entry of `index` (integers in [0, 2^32))."""
    return _mix((_mix(index ^ _absorb(0, key)) + _absorb(1, key)) & _MASK)


def randint(limit: int, index: Tensor, *key: int) -> Tensor:
    """Draw integers in [0, limit), limit < 2^31, almost uniformly: no probability is off by more than 2^-32."""
    return (bits(index, *key) * limit) >> 32


def permutation(size: int, *key: int, device: torch.device | str = "cpu") -> Tensor:
    """A random permutation of range(size) that depends only on the key."""
    index = torch.arange(size, device=device)
    # A stable sort gives the same order on every device even if two random numbers are equal (probability about
    # size^2 / 2^33).
    return torch.argsort(bits(index, *key), stable=True)


def _absorb(start: int, key: tuple[int, ...]) -> int:
    state = start
    for number in key:
        for word in (number & _MASK, (number >> 32) & _MASK):
            state = _mix(((state + _STEP) & _MASK) ^ word)
    return state


def _mix(x: Word) -> Word:
    """A bijection of 32-bit words in which every input bit moves every output bit (constants: C. Wellons)."""
    # 2^32 is subtracted from a multiplier above 2^31. The result modulo 2^32 is the same, and no product overflows a
    # signed 64-bit integer.
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & _MASK
    x = x ^ (x >> 15)
    x = (x * (0x846CA68B - 2**32)) & _MASK
    return x ^ (x >> 16)
