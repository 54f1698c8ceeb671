"""Schedules stay in their envelope, reach their tolerance, and are no longer than necessary."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lotnet.errors import InputError
from lotnet.linalg.polynomials import CUBIC, best_quintic, evaluate, min_sigma_for_length, schedule


def envelope(steps: tuple[tuple[float, float, float], ...], points: Tensor) -> Tensor:
    """The values after each step, one row each."""
    rows = [points]
    for step in steps:
        rows.append(torch.tensor([evaluate(step, s) for s in rows[-1].tolist()], dtype=torch.float64))
    return torch.stack(rows)


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 12), st.floats(0.5, 15))
def test_a_schedule_stays_in_the_envelope_and_reaches_its_tolerance(exponent: float, digits: float) -> None:
    lower, tolerance = 10**-exponent, 10**-digits
    steps = schedule(lower, tolerance)
    assert steps[-1] == CUBIC
    inside = torch.logspace(-exponent, 0, 400, dtype=torch.float64).clamp(lower, 1)
    anywhere = torch.cat((torch.linspace(0, 1, 400, dtype=torch.float64), inside * lower))
    for points in (inside, anywhere):
        values = envelope(steps, points)
        assert values.min() >= 0 and values.max() <= 2
        assert values[-1].max() <= 1 + 1e-15
        # No value moves close to zero, where rounding would dominate it.
        assert (values[1:] >= values[:-1].clamp_max(0.2) * (1 - 1e-12)).all()
    assert envelope(steps, inside)[-1].min() >= 1 - tolerance - 1e-15


def test_more_accuracy_takes_more_steps() -> None:
    lengths = [len(schedule(lower, 1e-5)) for lower in (1.0, 0.5, 1e-1, 1e-2, 1e-3, 1e-6, 1e-12)]
    assert lengths == sorted(lengths)
    assert len(schedule(0.02, 1e-5)) <= 5  # four quintics and the cubic


@pytest.mark.parametrize("lower", (1e-4, 0.01, 0.3, 0.9))
def test_the_best_quintic_equioscillates(lower: float) -> None:
    polynomial, error = best_quintic(lower, 1.0)
    errors = 1 - envelope((polynomial,), torch.linspace(lower, 1, 20001, dtype=torch.float64))[1]
    assert errors.abs().max().item() == pytest.approx(error, rel=1e-6)
    signs = errors[errors.abs() > 0.999 * error].sign()
    assert (signs.diff() != 0).sum() == 3  # four extremes of alternating sign: no odd quintic is better


def test_bad_schedules_are_refused() -> None:
    for lower, tolerance in ((0.0, 0.1), (1.1, 0.1), (0.5, 0.0), (0.5, 1e-17), (0.5, 1.0), (math.nan, 0.1)):
        with pytest.raises(InputError, match="a schedule needs"):
            schedule(lower, tolerance)


@pytest.mark.parametrize("lower", (1.0, 0.9, 0.3, 1e-2, 1e-15))
def test_the_finest_tolerance_is_reached(lower: float) -> None:
    steps = schedule(lower, 1e-16)  # an unreachable tolerance would loop forever
    assert abs(envelope(steps, torch.tensor([lower, 1.0], dtype=torch.float64))[-1] - 1).max() <= 1e-15


@pytest.mark.parametrize("tolerance", (1e-2, 1e-4, 1e-5, 1e-12))
@pytest.mark.parametrize("length", range(2, 12))
def test_min_sigma_for_length_is_the_smallest_for_that_length(length: int, tolerance: float) -> None:
    lower = min_sigma_for_length(length, tolerance)
    if lower == 1.0:  # even sigma = 1 needs more polynomials for this tolerance
        assert len(schedule(1.0, tolerance)) >= length
    else:
        assert len(schedule(lower, tolerance)) == length
        assert len(schedule(lower * (1 - 1e-5), tolerance)) == length + 1
