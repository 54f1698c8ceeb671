"""`OrthogonalConvTranspose2d` is the exact transpose of `OrthogonalConv2d`, for every parametrization."""

import pytest
import torch
from convolution_cases import GRID, Case, sample
from layer_cases import dense, randomize
from torch import nn

from lotnet import MaxMin, OrthogonalConv2d, OrthogonalConvTranspose2d, freeze, orthogonalized
from lotnet.errors import InputError


def check(case: Case) -> None:
    layer = OrthogonalConvTranspose2d(case.inner_channels, 4, bias=False, **case.arguments)
    forward = OrthogonalConv2d(4, case.inner_channels, bias=False, **case.arguments)
    randomize(layer, seed=2)
    forward.load_state_dict(layer.transposed.state_dict())
    shape, large = (case.inner_channels, *case.size), case.shape
    for training in (True, False):
        found = dense(layer.train(training), shape, torch.float32)
        assert (found - dense(forward.train(training), large, torch.float32).T).abs().max() <= 1e-6
    frozen = layer.frozen(shape, torch.float64)
    assert frozen.fits(shape) and frozen.output_shape(shape) == large
    matrix = dense(frozen, shape)
    assert (matrix - dense(forward.frozen(large, torch.float64), large).T).abs().max() <= 1e-12
    norm = float(torch.linalg.matrix_norm(matrix, 2))
    assert norm <= float(frozen.lipschitz_bound()) * (1 + 1e-14)
    bound = layer.transposed.parametrization.lipschitz_bound(case.kernel_size, True)
    assert float(frozen.lipschitz_bound()) <= bound + 1e-6


@pytest.mark.parametrize("case", sample([case for case in GRID if case.stride != 3]), ids=str)
def test_a_sample_is_the_adjoint(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", GRID, ids=str)
def test_it_is_the_adjoint(case: Case) -> None:
    check(case)


def test_an_autoencoder_is_trained_and_frozen() -> None:
    model = nn.Sequential(
        OrthogonalConv2d(2, 8, 3, 2), MaxMin(), OrthogonalConvTranspose2d(8, 2, 3, 2), OrthogonalConv2d(2, 2, 3)
    )
    randomize(model)
    x = torch.randn(2, 2, 6, 8)
    for _ in range(2):  # the second block knows the sizes
        model.zero_grad()
        with orthogonalized(model):
            model(x).square().sum().backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    frozen = freeze(model.eval(), (6, 8))
    assert torch.allclose(frozen(x), model(x), atol=1e-4)
    assert float(frozen.lipschitz_bound()) < 1 + 1e-5


@pytest.mark.parametrize("arguments", ((3, 2, 1, 1), (5, 3, 2, 2), (3, (2, 1), 1, (1, 0)), ((1, 3), 1, (0, 1), 0, 2)))
def test_arguments_in_the_order_of_pytorch(arguments: tuple) -> None:
    layer, plain = OrthogonalConvTranspose2d(4, 2, *arguments), nn.ConvTranspose2d(4, 2, *arguments)
    x = torch.randn(1, 4, 5, 6)
    assert layer(x).shape == plain(x).shape


def test_bad_input() -> None:
    with pytest.raises(InputError, match=r"images with 6 channels .*: set in_channels to match"):
        OrthogonalConvTranspose2d(6, 4, 3)(torch.zeros(1, 4, 6, 6))
    with pytest.raises(InputError, match=r"output_padding must be 0 or 1, not 2: the output is always"):
        OrthogonalConvTranspose2d(6, 4, 3, 2, 1, 2)
    with pytest.raises(InputError, match=r"padding must keep the size of the image"):
        OrthogonalConvTranspose2d(6, 4, 3, padding=0)
    assert OrthogonalConvTranspose2d(6, 4, 3)(torch.zeros(0, 6, 4, 4)).shape == (0, 4, 4, 4)
