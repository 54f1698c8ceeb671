"""Counter-based randomness: a number is a pure function of a key and an index, never of a generator's state.

Invariants:

* the same on every device and in every version of torch, because it is integer arithmetic and a stable sort;
* sample n's number does not depend on which process asks, in which order, or after how many others;
* different keys give unrelated streams.

Not for secrets.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

Word = TypeVar("Word", int, Tensor)

_MASK = 0xFFFFFFFF
_STEP = 0x9E3779B9  # 2^32 / golden ratio: consecutive key words never cancel


def bits(index: Tensor, *key: int) -> Tensor:
    """32 random bits, as int64 in [0, 2^32), for every entry of `index` (integers in [0, 2^32))."""
    return _mix((_mix(index ^ _absorb(0, key)) + _absorb(1, key)) & _MASK)


def below(limit: int, index: Tensor, *key: int) -> Tensor:
    """Integers in [0, limit), limit < 2^31; the bias from equal odds is at most limit / 2^32."""
    return (bits(index, *key) * limit) >> 32


def permutation(size: int, *key: int, device: torch.device | str = "cpu") -> Tensor:
    """A permutation of range(size) that depends on the key alone."""
    index = torch.arange(size, device=device)
    # Stable, so that the rare equal keys (probability about size^2 / 2^33) fall alike on every device.
    return torch.argsort(bits(index, *key), stable=True)


def _absorb(start: int, key: tuple[int, ...]) -> int:
    state = start
    for number in key:
        for word in (number & _MASK, (number >> 32) & _MASK):
            state = _mix(((state + _STEP) & _MASK) ^ word)
    return state


def _mix(x: Word) -> Word:
    """A bijection of 32-bit words in which every input bit moves every output bit (constants: C. Wellons)."""
    # A multiplier above 2^31 is written less 2^32: equal modulo 2^32, and every product stays within a
    # signed 64-bit integer, so that nothing leans on what overflow does.
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & _MASK
    x = x ^ (x >> 15)
    x = (x * (0x846CA68B - 2**32)) & _MASK
    return x ^ (x >> 16)
