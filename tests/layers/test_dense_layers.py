"""`OrthogonalLinear` and `NormalizedLinear`."""

import pytest
import torch
from layer_cases import randomize
from torch import Tensor, nn

from lotnet import NormalizedLinear, OrthogonalLinear
from lotnet.errors import InputError
from lotnet.layers.linear import normalized_rows
from lotnet.parametrizations import PARAMETRIZATIONS, parametrization


def matrix(layer: nn.Module, features: int) -> Tensor:
    eye = torch.eye(features, dtype=torch.float64)
    return (layer(eye) - layer(torch.zeros_like(eye[:1]))).T.detach()


@pytest.mark.parametrize("name", PARAMETRIZATIONS)
@pytest.mark.parametrize("sizes", ((5, 5), (7, 3), (3, 7), (1, 4)))
def test_orthonormal_on_the_short_side(name: str, sizes: tuple[int, int]) -> None:
    inputs, outputs = sizes
    layer = randomize(OrthogonalLinear(inputs, outputs, parametrization=name).double()).eval()
    values = torch.linalg.svdvals(matrix(layer, inputs))
    recipe = parametrization(name)
    assert values[0] <= recipe.lipschitz_bound(1, frozen=True) + 1e-9
    if recipe.orthogonal and outputs >= inputs:
        assert values[-1] >= 1 - 1e-9
    if name == "lot":
        assert values[-1] >= 1 - 1e-9


def test_lot_is_the_nearest_orthogonal_matrix() -> None:
    layer = randomize(OrthogonalLinear(6, 4).double()).eval()
    u, _, vh = torch.linalg.svd(layer.weight.detach().flatten(1), full_matrices=False)
    assert torch.allclose(matrix(layer, 6), u @ vh, atol=1e-10)


@pytest.mark.parametrize("kind", (OrthogonalLinear, NormalizedLinear))
def test_a_dense_layer_takes_vectors_of_its_size(kind: type[nn.Module]) -> None:
    layer = kind(4, 3)
    for shape in ((2, 5), (2, 4, 1, 1), (4,)):
        with pytest.raises(InputError, match=r"vectors of 4 features .*: flatten the input or set in_features"):
            layer(torch.zeros(shape))
    with pytest.raises(InputError, match="divide 8-bit images by 255"):
        layer(torch.zeros(1, 4, dtype=torch.uint8))
    with pytest.raises(InputError, match="out_features must be one whole number, at least 1, not 0"):
        kind(4, 0)


@pytest.mark.parametrize("kind", (OrthogonalLinear, NormalizedLinear))
def test_a_weight_that_is_not_finite_is_refused(kind: type[nn.Module]) -> None:
    layer = kind(4, 3)
    with torch.no_grad():
        next(layer.parameters()).view(-1)[0] = torch.nan
    for training in (True, False):
        with pytest.raises(InputError, match="has NaN or infinite entries"):
            layer.train(training)(torch.zeros(1, 4))


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
@pytest.mark.parametrize("kind", (OrthogonalLinear, NormalizedLinear))
def test_dense_layers_return_the_dtype_of_their_input(kind: type[nn.Module], dtype: torch.dtype) -> None:
    layer = kind(4, 3)
    x = torch.randn(2, 4)
    assert layer(x.to(dtype)).dtype == dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x), layer(x).float())
        assert layer(x).dtype == torch.float32


def test_normalized_rows_have_norm_one() -> None:
    layer = randomize(NormalizedLinear(6, 4).double())
    rows = matrix(layer, 6)
    assert torch.allclose(rows.norm(dim=1), torch.ones(4, dtype=torch.float64), atol=1e-14)


@pytest.mark.parametrize("scale", (1e-30, 1e-6, 3.0, 1e6, 1e30))
def test_normalized_rows_do_not_depend_on_the_scale(scale: float) -> None:
    weight = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(normalized_rows(weight * scale), normalized_rows(weight), atol=1e-6)
    assert torch.equal(normalized_rows(weight * 2.0**40), normalized_rows(weight))


def test_a_zero_row_stays_zero_with_a_finite_gradient() -> None:
    layer = NormalizedLinear(6, 4)
    with torch.no_grad():
        layer.weight[2] = 0
    y = layer(torch.randn(3, 6))
    assert torch.equal(y[:, 2], torch.zeros(3))
    y.square().sum().backward()
    assert torch.isfinite(layer.weight.grad).all()
    assert float(layer.frozen((6,), torch.float32).lipschitz_bound()) < 2


def test_gradient_of_a_normalized_row_is_tangent_to_the_sphere() -> None:
    layer = randomize(NormalizedLinear(6, 4).double())
    layer(torch.randn(3, 6, dtype=torch.float64)).square().sum().backward()
    radial = (layer.weight.grad * layer.weight.detach()).sum(dim=1)
    assert radial.abs().max() < 1e-12
