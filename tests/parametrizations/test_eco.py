"""ECO: orthogonal at k x k frequencies, and only on images that k divides."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.errors import InputError
from lotnet.linalg.fourier import Grid, transfer
from lotnet.operators import Kernel
from lotnet.parametrizations import ECO, LOT, Geometry


def operator_of(weight: Tensor, height: int, width: int, padding_mode: str) -> Kernel:
    o, i, k, _ = weight.shape
    operator = ECO().operator(weight, Geometry(o, i, k, height, width, padding_mode), frozen=True)
    assert isinstance(operator, Kernel)
    return operator


def random_weight(o: int, i: int, k: int) -> Tensor:
    return torch.randn(o, i, k, k, generator=torch.Generator().manual_seed(k), dtype=torch.float64)


@pytest.mark.parametrize("k", (1, 2, 3, 4, 5))
def test_the_kernel_is_real_and_orthogonal_at_its_own_frequencies(k: int) -> None:
    kernel = operator_of(random_weight(4, 3, k), 4 * k, 2 * k, "circular").kernel
    assert kernel.shape == (4, 3, k, k) and not kernel.is_complex()
    values = torch.linalg.svdvals(transfer(kernel, Grid(k, k)))
    assert torch.allclose(values, torch.ones_like(values), atol=1e-12)
    if k > 1:  # it is not orthogonal in between: hence no zeros around the image
        assert torch.linalg.svdvals(transfer(kernel, Grid(4 * k, 4 * k))).max() > 1.01


def test_is_lot_when_the_kernel_is_as_large_as_the_image() -> None:
    weight = random_weight(3, 3, 5)
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    lot = LOT().operator(weight, Geometry(3, 3, 5, 5, 5, "circular"), frozen=True)
    assert torch.allclose(operator_of(weight, 5, 5, "circular").apply(x), lot.apply(x), atol=1e-12)


def test_dilation_follows_the_image() -> None:
    assert operator_of(random_weight(2, 2, 3), 12, 6, "circular").dilation == (4, 2)
    assert operator_of(random_weight(2, 2, 1), 12, 6, "circular").dilation == (1, 1)


@pytest.mark.parametrize("height, width", ((7, 9), (8, 8), (10, 11), (3, 4)))
def test_zeros_extend_the_image_to_a_multiple_and_crop(height: int, width: int) -> None:
    weight = random_weight(2, 2, 3)
    x = torch.randn(2, 2, height, width, dtype=torch.float64)
    operator = operator_of(weight, height, width, "zeros")
    below, right = operator.extra
    assert (height + below) % 3 == 0 and (width + right) % 3 == 0 and max(below, right) < 3
    periodic = operator_of(weight, height + below, width + right, "circular")
    extended = periodic.apply(F.pad(x, (0, right, 0, below)))
    assert torch.equal(operator.apply(x), extended[..., :height, :width])
    assert operator.apply(x).norm() <= x.norm() * (1 + 1e-12)
    assert torch.allclose(extended.norm(), x.norm(), rtol=1e-12)


def test_circular_images_that_k_does_not_divide_are_refused() -> None:
    with pytest.raises(InputError, match=r'sides divisible by 3, not 8 x 9: .* padding_mode="zeros"'):
        operator_of(random_weight(2, 2, 3), 8, 9, "circular")
