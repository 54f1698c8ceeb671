"""Counter-based randomness: a function of key and index, uniform enough to train with."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lotnet.data.counter_rng import bits, permutation, randint

KEYS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3)


def test_values_never_change():
    # Stored values: a run of last year must resume with today's code.
    assert bits(torch.arange(4), 1, 2, 3).tolist() == [3803952518, 676777000, 667792597, 3303337467]
    assert permutation(6, 0, 1).tolist() == [0, 5, 2, 4, 1, 3]


@given(KEYS, st.permutations(list(range(20))))
def test_depends_on_the_index_not_on_the_order(key, order):
    whole = bits(torch.arange(20), *key)
    assert torch.equal(bits(torch.tensor(order), *key), whole[torch.tensor(order)])


@given(KEYS, st.integers(0, 200))
def test_permutation_holds_every_index_once(key, size):
    assert permutation(size, *key).sort().values.tolist() == list(range(size))


@pytest.mark.parametrize("limit", [2, 3, 9])
def test_randint_is_uniform(limit):
    n = 90_000
    counts = torch.bincount(randint(limit, torch.arange(n), 7, 0, 1), minlength=limit).double()
    chi_square = ((counts - n / limit) ** 2 / (n / limit)).sum()
    assert len(counts) == limit
    assert chi_square < 40  # 8 degrees of freedom: probability below 1e-5


@pytest.mark.parametrize("other", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (2**32, 0, 0), (-1, 0, 0)])
def test_keys_give_unrelated_streams(other):
    index = torch.arange(50_000)
    one = (bits(index, 0, 0, 0) >> 31).double() * 2 - 1
    two = (bits(index, *other) >> 31).double() * 2 - 1
    assert abs((one * two).mean()) < 5 / 50_000**0.5
    assert abs((one[1:] * one[:-1]).mean()) < 5 / 50_000**0.5
