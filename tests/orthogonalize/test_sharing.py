"""Which layers are orthogonalised by one process for all."""

import pytest
import torch

from lotnet.kernels import dispatch
from lotnet.orthogonalize.sharing import is_worth_sharing, numbers
from lotnet.parametrizations import Geometry
from lotnet.parametrizations.lot import split

GPU = 1500.0


@pytest.mark.parametrize("kernel_size", (1, 3, (3, 2)))
@pytest.mark.parametrize("sides", ((4, 6), (5, 3), (2, 2)))
def test_what_is_sent_is_counted_in_numbers_of_the_distinct_matrices(kernel_size, sides: tuple[int, int]) -> None:
    geometry = Geometry(4, 6, kernel_size, *sides)
    rows, columns = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    (matrices,) = split([(torch.randn(4, 6, rows, columns), geometry)])
    sent = sum(v.numel() * (1 + v.is_complex()) for v in matrices)
    padded_with_zeros = 0 if kernel_size == 1 else 24 * geometry.grid.self_conjugates  # their imaginary parts
    assert sent == numbers(geometry) + padded_with_zeros


@pytest.mark.parametrize(
    ("channels", "inputs", "rate", "expected"),
    [(130, 130, GPU, False), (150, 150, GPU, True), (180, 360, GPU, False), (210, 420, GPU, True), (4, 8, 20.0, True)],
)
def test_wide_layers_are_shared(
    channels: int, inputs: int, rate: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the size of the image: operations and numbers both grow with its pixels."""
    monkeypatch.setattr(dispatch, "operations_per_byte", lambda weight: rate)
    for side in (2, 8, 32):
        for geometry in (Geometry(channels, inputs, 3, side, side), Geometry(inputs, channels, 3, side, side)):
            assert is_worth_sharing(geometry, torch.empty(0)) == expected
