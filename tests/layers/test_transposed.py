"""`OrthogonalConvTranspose2d` is the exact transpose of `OrthogonalConv2d`, for every parametrization."""

import pytest
import torch
from layer_cases import dense, randomize
from torch import nn

from lotnet import MaxMin, OrthogonalConv2d, OrthogonalConvTranspose2d, freeze, orthogonalized
from lotnet.errors import InputError
from lotnet.parametrizations import PARAMETRIZATIONS

# kernel_size, stride, groups, dilation, padding_mode
SIZES = (
    (3, 1, 1, 1, "zeros"),
    (2, 1, 1, 1, "zeros"),
    (2, 1, 2, 1, "circular"),
    ((3, 2), 2, 2, 1, "zeros"),
    (3, 1, 1, 2, "zeros"),
    (1, 2, 1, 1, "circular"),
)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", PARAMETRIZATIONS)
def test_it_is_the_adjoint(name: str, size: tuple) -> None:
    k, stride, groups, dilation, padding_mode = size
    sizes = {"stride": stride, "groups": groups, "dilation": dilation, "padding_mode": padding_mode}
    layer = OrthogonalConvTranspose2d(6, 4, k, bias=False, parametrization=name, **sizes)
    forward = OrthogonalConv2d(4, 6, k, bias=False, parametrization=name, **sizes)
    randomize(layer, seed=2)
    forward.load_state_dict(layer.transposed.state_dict())
    shape, large = (6, 4, 6), (4, 4 * stride, 6 * stride)
    for training in (True, False):
        found = dense(layer.train(training), shape, torch.float32)
        assert (found - dense(forward.train(training), large, torch.float32).T).abs().max() <= 1e-6
    frozen = layer.frozen(shape, torch.float64)
    assert frozen.fits(shape) and frozen.output_shape(shape) == large
    matrix = dense(frozen, shape)
    assert (matrix - dense(forward.frozen(large, torch.float64), large).T).abs().max() <= 1e-12
    norm = float(torch.linalg.matrix_norm(matrix, 2))
    assert norm <= float(frozen.lipschitz_bound()) * (1 + 1e-14)
    assert float(frozen.lipschitz_bound()) <= layer.transposed.parametrization.lipschitz_bound(k, True) + 1e-6


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


def test_bad_input() -> None:
    with pytest.raises(InputError, match=r"images with 6 channels .*: set in_channels to match"):
        OrthogonalConvTranspose2d(6, 4, 3)(torch.zeros(1, 4, 6, 6))
    with pytest.raises(InputError, match=r"use an odd kernel_size or dilation=1"):
        OrthogonalConvTranspose2d(6, 4, 2, dilation=2)
    with pytest.raises(InputError, match=r"padding must keep the size of the image"):
        OrthogonalConvTranspose2d(6, 4, 3, padding=0)
    assert OrthogonalConvTranspose2d(6, 4, 3)(torch.zeros(0, 6, 4, 4)).shape == (0, 4, 4, 4)
