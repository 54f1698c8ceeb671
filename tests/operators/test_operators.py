"""The contract of `Operator`, for every form in lotnet."""

import operator_contract as contract
import pytest
import torch

from lotnet.linalg.complex_layout import real_blocks
from lotnet.linalg.fourier import Grid, transfer
from lotnet.operators import Blocks, Dilated, Grouped, Kernel, Operator, Phases, Series, Spectrum
from lotnet.parametrizations import PARAMETRIZATIONS

SHAPE = (2, 6, 4)


def spectrum(grid: Grid) -> Spectrum:
    return Spectrum(transfer(0.1 * torch.randn(3, 2, 3, 3, dtype=torch.float64), grid), grid)


def skew(channels: int) -> Kernel:
    kernel = 0.1 * torch.randn(channels, channels, 3, 3, dtype=torch.float64)
    return Kernel(kernel - kernel.transpose(0, 1).flip(2, 3))


def made(name: str) -> Operator:
    torch.manual_seed(0)
    kernel = 0.1 * torch.randn(3, 2, 3, 3, dtype=torch.float64)
    padded = spectrum(Grid(6, 4, 1))
    forms = {
        "spectrum": padded,
        "spectrum, periodic": spectrum(Grid(6, 4)),
        "blocks": Blocks(real_blocks(padded.transfers), padded.grid),
        "kernel": Kernel(kernel),
        "kernel, one tap": Kernel(kernel[..., :1, :1]),
        "kernel, periodic and dilated": Kernel(kernel, "circular", dilation=(2, 1)),
        "kernel, filled up": Kernel(kernel, "circular", extra=(1, 2)),
        "series": Series(skew(3), 6, 3),
        "dilated": Dilated(Kernel(kernel), Phases((2, 3), (1, 0))),
        "dilated, periodic": Dilated(spectrum(Grid(3, 4)), Phases((2, 1), (1, 0), circular=True)),
        "dilated, transposed": Dilated(Kernel(kernel), Phases((2, 3), (1, 2), transposed=True)),
        "grouped": Grouped((Kernel(kernel[:, :1]), Kernel(kernel[:, 1:]))),
    }
    return forms[name]


NAMES = (
    "spectrum",
    "spectrum, periodic",
    "blocks",
    "kernel",
    "kernel, one tap",
    "kernel, periodic and dilated",
    "kernel, filled up",
    "series",
    "dilated",
    "dilated, periodic",
    "dilated, transposed",
    "grouped",
)


@pytest.mark.parametrize("name", NAMES)
def test_apply(name: str) -> None:
    contract.check_apply(made(name), SHAPE)


@pytest.mark.parametrize("name", NAMES)
def test_rebuilt(name: str) -> None:
    contract.check_rebuilt(made(name), SHAPE)


@pytest.mark.parametrize("name", NAMES)
def test_cast(name: str) -> None:
    contract.check_cast(made(name), SHAPE)


@pytest.mark.parametrize("name", NAMES)
def test_adjoint(name: str) -> None:
    contract.check_adjoint(made(name), SHAPE)


# Blocks stand for a real operator only where they have the form of a complex matrix; multiplied by 3 they still do.
@pytest.mark.parametrize("name", NAMES)
def test_frozen(name: str) -> None:
    operator = made(name)
    contract.check_frozen(operator, SHAPE)


@pytest.mark.parametrize("name", NAMES)
def test_norm_matrices_bound_the_norm(name: str) -> None:
    operator = made(name)
    matrices = operator.norm_matrices()
    if matrices is None:
        assert name not in ("spectrum", "spectrum, periodic", "blocks", "kernel, one tap")
        return
    norm = torch.linalg.matrix_norm(contract.matrix(operator.apply, SHAPE), 2)
    assert norm <= torch.linalg.matrix_norm(matrices, 2).max() * (1 + 1e-12)


@pytest.mark.parametrize("name", PARAMETRIZATIONS)
def test_gradients_in_a_block_of_orthogonalized(name: str) -> None:
    contract.check_orthogonalized(PARAMETRIZATIONS[name]())
