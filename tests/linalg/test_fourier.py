"""Fourier transforms as matrices: they are isometries, and give the same convolutions as PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lotnet.errors import InputError
from lotnet.linalg.complex_layout import real_blocks
from lotnet.linalg.fourier import (
    Grid,
    analyze,
    column_basis,
    convolve,
    distinct_transfers,
    expand,
    full_kernel,
    row_basis,
    synthesize,
    transfer,
)
from lotnet.operators import Kernel

CPU = torch.device("cpu")
sides = st.integers(1, 9)
grids = st.builds(Grid, sides, sides, st.integers(0, 3))


def images(grid: Grid, channels: int = 2, batch: int = 3) -> Tensor:
    return torch.randn(batch, channels, grid.height, grid.width, dtype=torch.float64)


@settings(deadline=None, max_examples=60)
@given(grids)
def test_the_transform_is_an_isometry_with_its_transpose_as_inverse(grid: Grid) -> None:
    x = images(grid)
    spectrum = analyze(x, grid)
    assert spectrum.shape == (grid.frequencies, 4, 3)
    assert torch.allclose(spectrum.norm(), x.norm(), rtol=1e-13)
    assert torch.allclose(synthesize(spectrum, grid), x, atol=1e-13)
    # <T x, z> = <x, T^T z> for any z, including one that is not the spectrum of any image.
    z = torch.randn_like(spectrum)
    assert torch.allclose((spectrum * z).sum(), (x * synthesize(z, grid)).sum(), atol=1e-10)
    # T has orthonormal columns, so T^T never increases a norm.
    assert synthesize(z, grid).norm() <= z.norm() * (1 + 1e-13)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@settings(deadline=None, max_examples=60)
@given(grids, st.integers(1, 5), st.sampled_from(("zeros", "circular")))
def test_equals_the_convolution_of_pytorch(grid: Grid, k: int, padding_mode: str) -> None:
    grid = Grid(grid.height, grid.width, 0 if padding_mode == "circular" else k // 2)
    if k > min(grid.rows, grid.columns):
        return
    x, kernel = images(grid), torch.randn(4, 2, k, k, dtype=torch.float64)
    expected = Kernel(kernel, padding_mode).apply(x)
    if padding_mode == "zeros":
        assert torch.allclose(expected, F.conv2d(x, kernel, padding="same"), atol=1e-12)
    actual = convolve(x, real_blocks(transfer(kernel, grid)), grid)
    assert not actual.is_complex()
    assert torch.allclose(actual, expected, atol=1e-12)


@pytest.mark.parametrize("k", (1, 2, 3, 4, 5))
@pytest.mark.parametrize("grid", (Grid(8, 5), Grid(5, 6, 2)))
def test_a_centre_delta_is_the_identity(grid: Grid, k: int) -> None:
    kernel = torch.zeros(2, 2, k, k, dtype=torch.float64)
    kernel[:, :, (k - 1) // 2, (k - 1) // 2] = torch.eye(2)
    transfers = transfer(kernel, grid)
    assert torch.equal(transfers, torch.eye(2, dtype=torch.complex128).expand_as(transfers))
    x = images(grid)
    assert torch.allclose(convolve(x, real_blocks(transfers), grid), x, atol=1e-13)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 9), st.integers(1, 9))
def test_full_kernel_is_the_inverse_of_transfer(rows: int, columns: int) -> None:
    grid = Grid(rows, columns)
    kernel = torch.randn(3, 2, rows, columns, dtype=torch.float64)
    assert torch.allclose(full_kernel(transfer(kernel, grid), grid), kernel, atol=1e-13)


@settings(deadline=None, max_examples=30)
@given(grids, st.integers(1, 5))
def test_full_kernel_of_a_small_kernel_is_it_padded_with_zeros(grid: Grid, k: int) -> None:
    if k > min(grid.rows, grid.columns):
        return
    kernel = torch.randn(3, 2, k, k, dtype=torch.float64)
    top, left = (grid.rows - 1) // 2 - (k - 1) // 2, (grid.columns - 1) // 2 - (k - 1) // 2
    rest = (left, grid.columns - k - left, top, grid.rows - k - top)
    assert torch.allclose(full_kernel(transfer(kernel, grid), grid), F.pad(kernel, rest), atol=1e-13)


@settings(deadline=None, max_examples=30)
@given(grids)
def test_the_operator_of_any_transfers_is_real_and_bounded_by_them(grid: Grid) -> None:
    """No symmetry is needed: transfers without it are projected, which never increases their norm."""
    transfers = torch.randn(grid.frequencies, 3, 2, dtype=torch.complex128)
    transfers = transfers / torch.linalg.matrix_norm(transfers, ord=2, keepdim=True)
    x = images(grid)
    y = convolve(x, real_blocks(transfers), grid)
    assert not y.is_complex()
    assert y.norm() <= x.norm() * (1 + 1e-13)


@settings(deadline=None, max_examples=60)
@given(grids, st.integers(1, 5))
def test_distinct_transfers_expand_to_all(grid: Grid, k: int) -> None:
    if k > min(grid.rows, grid.columns):
        return
    kernel = torch.randn(3, 2, k, k, dtype=torch.float64)
    reals, pairs = distinct_transfers(kernel, grid)
    # Each real frequency stands for itself, each complex one for two of the full spectrum.
    assert len(reals) + 2 * len(pairs) == grid.rows * grid.columns
    assert torch.allclose(expand(reals, pairs, grid), transfer(kernel, grid), atol=1e-13)


def test_real_blocks_act_on_stacked_parts() -> None:
    w, z = torch.randn(2, 5, 3, 4, dtype=torch.complex128), torch.randn(5, 4, 2, dtype=torch.complex128)
    for block in w:
        y = block @ z
        actual = real_blocks(block) @ torch.cat((z.real, z.imag), dim=1)
        assert torch.allclose(actual, torch.cat((y.real, y.imag), dim=1), atol=1e-13)


@pytest.mark.parametrize("n", (1, 2, 3, 7, 16, 33, 40))
@pytest.mark.parametrize("padding", (0, 2))
def test_bases_are_the_fft(n: int, padding: int) -> None:
    grid = Grid(n, n, padding)
    x = torch.randn(n, n, dtype=torch.float64)
    full = torch.fft.rfft2(F.pad(x, (padding,) * 4), dim=(1, 0), norm="ortho")
    full[1 : (grid.rows + 1) // 2] *= 2**0.5
    spectrum = analyze(x[None, None], grid).view(grid.half, grid.columns, 2)
    assert torch.allclose(torch.view_as_complex(spectrum), full, atol=1e-12)
    assert row_basis(grid, torch.float64, CPU).shape == (2 * grid.half, n)
    assert column_basis(grid, torch.float64, CPU).shape == (2 * grid.columns, 2 * n)


def test_float32_transforms_are_the_rounded_float64_ones() -> None:
    grid = Grid(12, 10, 1)
    for basis in (row_basis, column_basis):
        assert torch.equal(basis(grid, torch.float32, CPU), basis(grid, torch.float64, CPU).float())


def test_gradients_pass_through() -> None:
    grid = Grid(4, 3, 1)
    x = torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)

    def apply(x: Tensor, kernel: Tensor) -> Tensor:
        return convolve(x, real_blocks(transfer(kernel, grid)), grid)

    assert torch.autograd.gradcheck(apply, (x, kernel))


def test_a_kernel_larger_than_the_grid_is_refused() -> None:
    with pytest.raises(InputError, match="smaller kernel or a larger image"):
        transfer(torch.ones(1, 1, 5, 5), Grid(4, 8))
