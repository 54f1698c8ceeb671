"""A sample of `make fuzz`: damaged and hand-made files for every reader."""

import warnings

from hostile import fuzz


def test_every_reader_returns_a_value_or_refuses_in_one_line() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends, wrong = fuzz(range(300))
    assert not wrong
    assert ends["refused"] > 100 and ends["read"] > 30
