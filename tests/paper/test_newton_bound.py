"""The paper's iteration: its theorem holds, and singular values rise to one from below."""

import pytest
import torch
from torch import Tensor

from literal_lot import newton_polar
from lotnet.errors import InputError
from lotnet.paper.newton_bound import newton_error_bound, newton_iterates


def matrices(m: int, n: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(8, m, n, generator=g, dtype=torch.complex128)


@pytest.mark.parametrize("shape", ((4, 4), (3, 6), (6, 3), (1, 1)))
def test_the_last_iterate_is_the_papers_result(shape: tuple[int, int]) -> None:
    v = matrices(*shape)
    iterates = list(newton_iterates(v, 10))
    assert len(iterates) == 11
    assert torch.allclose(iterates[-1], newton_polar(v, 10), atol=1e-12)


@pytest.mark.parametrize("shape", ((4, 4), (3, 6), (6, 3)))
def test_singular_values_rise_from_below(shape: tuple[int, int]) -> None:
    every = torch.stack([torch.linalg.svdvals(w) for w in newton_iterates(matrices(*shape), 25)])
    # V V* of a tall V is singular: there Z, and its rounding errors, grow by a factor of 1.5 in each step.
    rounding = 1e-12 if shape[0] <= shape[1] else 1e-9
    assert (every.diff(dim=0) >= -rounding).all()
    assert every.max() <= 1 + rounding
    assert every[-1].min() >= 1 - 1e-6


@pytest.mark.parametrize("shape", ((4, 4), (3, 6)))
def test_the_bound_holds_and_tends_to_one(shape: tuple[int, int]) -> None:
    for seed in range(4):
        v = matrices(*shape, seed)
        largest = torch.stack([torch.linalg.matrix_norm(w, ord=2) for w in newton_iterates(v, 30)])
        bounds = torch.stack([newton_error_bound(v, steps) for steps in range(31)])
        assert (largest <= bounds + 1e-12).all()
        assert (bounds.diff(dim=0) <= 1e-12).all()
        assert (bounds[-1] <= 1 + 1e-6).all()


def test_the_bound_does_not_depend_on_the_scale() -> None:
    v = matrices(4, 4)
    assert torch.allclose(newton_error_bound(v, 5), newton_error_bound(1e3 * v, 5), rtol=1e-9)


def test_the_theorem_says_nothing_without_full_row_rank() -> None:
    assert newton_error_bound(matrices(6, 3), 10).isinf().all()
    singular = torch.ones(1, 3, 3, dtype=torch.float64)
    assert newton_error_bound(singular, 2).item() > 1e3


@pytest.mark.parametrize("hard", [0.0, 1e-200, 1e200, float("nan"), float("inf")])
def test_what_cannot_be_rescaled_gives_a_one_sentence_error(hard: float) -> None:
    v = torch.stack((torch.eye(3).double(), hard * torch.eye(3).double()))
    with pytest.raises(InputError, match="cannot rescale it: use another kernel"):
        newton_error_bound(v, 3)
    with pytest.raises(InputError, match="cannot rescale it"):
        list(newton_iterates(v, 2))
