"""The contract of `Parametrization`, for every entry of the table. New entries are covered automatically."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.layers import OrthogonalConv2d
from lotnet.operators import Kernel, Operator
from lotnet.parametrizations import PARAMETRIZATIONS, Geometry, Parametrization, parametrization

# (in_channels, out_channels) by stride: the stride turns pixels into channels, which decides which side is longer.
SHAPES = {
    "square": {1: (2, 2), 2: (1, 4)},
    "wide": {1: (3, 2), 2: (1, 3)},
    "tall": {1: (2, 3), 2: (1, 6)},
}
SIDES = {1: 12, 2: 12, 3: 12, 5: 20}  # ECO needs sides, halved by the stride, that k divides

names = pytest.mark.parametrize("name", PARAMETRIZATIONS)
shapes = pytest.mark.parametrize("shape", SHAPES)
kernels = pytest.mark.parametrize("k", SIDES)
strides = pytest.mark.parametrize("stride", (1, 2))
paddings = pytest.mark.parametrize("padding_mode", ("zeros", "circular"))


def make(name: str, shape: str, k: int, stride: int, padding_mode: str) -> OrthogonalConv2d:
    """A float64 layer with a random kernel and bias."""
    torch.manual_seed(k)
    layer = OrthogonalConv2d(
        *SHAPES[shape][stride], k, stride, padding_mode=padding_mode, parametrization=name
    ).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


@torch.no_grad()
def jacobian(layer: nn.Module, channels: int, height: int, width: int, dtype: torch.dtype) -> Tensor:
    """The dense matrix of an affine layer, from its response to every impulse."""
    n = channels * height * width
    impulses = torch.eye(n, dtype=dtype).view(n, channels, height, width)
    response = layer(impulses) - layer(torch.zeros_like(impulses[:1]))
    return response.flatten(1).T


def extreme_singular_values(matrix: Tensor) -> tuple[float, float]:
    """The smallest and the largest of the min(m, n) singular values, accurate to 1e-14 near one."""
    matrix = matrix.double()
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    values = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt()
    return values[0].item(), values[-1].item()


def check_singular_values(name: str, shape: str, k: int, stride: int, padding_mode: str) -> None:
    layer = make(name, shape, k, stride, padding_mode).eval()
    smallest, largest = extreme_singular_values(jacobian(layer, layer.in_channels, SIDES[k], SIDES[k], torch.float64))
    assert largest <= layer.parametrization.lipschitz_bound(k, frozen=True) + 1e-6
    if padding_mode == "circular" and shape != "wide" and layer.parametrization.orthogonal:
        assert smallest >= 1 - 1e-6
        x = torch.randn(1, layer.in_channels, SIDES[k], SIDES[k], dtype=torch.float64)
        response = layer(x) - layer(torch.zeros_like(x))
        assert response.norm().item() == pytest.approx(x.norm().item(), rel=1e-6)


@paddings
@strides
@kernels
@shapes
@names
def test_singular_values(name: str, shape: str, k: int, stride: int, padding_mode: str) -> None:
    check_singular_values(name, shape, k, stride, padding_mode)


def _zero(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight)


def _rank_one(weight: Tensor) -> Tensor:
    return torch.ones_like(weight)  # of rank one at every frequency, zero at some


def _one_row(weight: Tensor) -> Tensor:
    one = torch.zeros_like(weight)
    one[0] = weight[0]
    return one


HARD_WEIGHTS = {"zero": _zero, "rank one": _rank_one, "one row": _one_row} | {
    f"scale {scale:g}": lambda weight, scale=scale: scale * weight for scale in (1e-15, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e15)
}


@pytest.mark.parametrize("hard", HARD_WEIGHTS)
@shapes
@names
def test_float32_training_stays_finite_and_bounded_for_every_weight(name: str, shape: str, hard: str) -> None:
    for k, padding_mode in itertools.product((1, 2, 3), ("zeros", "circular")):
        layer = make(name, shape, k, 1, padding_mode).float().train()
        with torch.no_grad():
            layer.weight.copy_(HARD_WEIGHTS[hard](layer.weight))
        matrix = jacobian(layer, layer.in_channels, 6, 6, torch.float32)
        assert torch.isfinite(matrix).all()
        assert extreme_singular_values(matrix)[1] <= layer.parametrization.lipschitz_bound(k) + 1e-4
        x = torch.randn(2, layer.in_channels, 6, 6, requires_grad=True)
        y = layer(x)
        (y * torch.randn_like(y)).sum().backward()
        assert x.grad is not None and layer.weight.grad is not None
        assert torch.isfinite(x.grad).all() and torch.isfinite(layer.weight.grad).all()


@shapes
@names
def test_gradients_match_finite_differences(name: str, shape: str) -> None:
    recipe = parametrization(name)
    for k, padding_mode in itertools.product((1, 2, 3), ("zeros", "circular")):
        torch.manual_seed(k)
        i, o = SHAPES[shape][1]
        geometry = Geometry(o, i, k, 6, 6, padding_mode)
        weight = recipe.initial_weight(o, i, k).double()
        weight = (weight + 0.3 * torch.randn_like(weight)).requires_grad_()
        x = torch.randn(1, i, 6, 6, dtype=torch.float64, requires_grad=True)

        def apply(x: Tensor, weight: Tensor, geometry: Geometry = geometry) -> Tensor:
            return recipe.operator(weight, geometry).apply(x)

        # The gradient is exact for the limit of the iteration, which the value reaches to 1e-5 in training.
        assert torch.autograd.gradcheck(apply, (x, weight), rtol=1e-3, atol=1e-3, fast_mode=True)


@names
def test_training_and_frozen_operators_agree(name: str) -> None:
    for k in (1, 2, 3):
        layer = make(name, "square", k, 1, "circular")
        with torch.no_grad():  # near the start, so that the condition number is as early in training
            start = layer.parametrization.initial_weight(2, 2, k)
            layer.weight.copy_(start.double() + 0.1 * torch.randn_like(layer.weight))
        x = torch.randn(1, 2, 12, 12, dtype=torch.float64)
        # SOC sums five terms in training: 2.1^6 / 6! is 0.12.
        tolerance = 0.2 if name == "soc" else 1e-4
        assert (layer.train()(x) - layer.eval()(x)).norm() <= tolerance * x.norm()


@names
def test_an_operator_is_a_function_of_its_weight(name: str) -> None:
    recipe = parametrization(name)
    for frozen, dtype in itertools.product((False, True), (torch.float32, torch.float64)):
        weight = torch.randn(recipe.weight_shape(2, 3, 3), dtype=dtype)
        before = weight.clone()
        x = torch.randn(1, 3, 6, 9, dtype=dtype)
        geometry = Geometry(2, 3, 3, 6, 9, "zeros")
        first, second = (recipe.operator(weight, geometry, frozen).apply(x) for _ in range(2))
        assert torch.equal(first, second)
        assert torch.equal(weight, before)
        assert first.dtype == dtype and first.shape == (1, 2, 6, 9)


@names
def test_a_layer_starts_at_the_identity_if_the_channels_are_equal(name: str) -> None:
    for k in (1, 3, 5):
        x = torch.randn(2, 4, 10, 15)
        layer = OrthogonalConv2d(4, 4, k, parametrization=name)
        if name == "soc":  # starts at random: see its docstring
            assert (layer(x) - x).norm() > 0.1 * x.norm()
        elif name == "rko":  # the scale that is safe for every kernel
            assert torch.allclose(k * layer(x), x, atol=1e-4)
        else:
            assert torch.allclose(layer(x), x, atol=1e-4)


@names
def test_the_smallest_images(name: str) -> None:
    """All frequencies of a 2 x 2 image are real, and the kernel is as large as the image."""
    for padding_mode, side, k in (("circular", 1, 1), ("circular", 2, 2), ("zeros", 1, 3), ("zeros", 2, 2)):
        layer = OrthogonalConv2d(3, 4, k, padding_mode=padding_mode, parametrization=name)
        for training in (True, False):
            matrix = jacobian(layer.train(training), 3, side, side, torch.float32)
            assert extreme_singular_values(matrix)[1] <= layer.parametrization.lipschitz_bound(k) + 1e-4


@kernels
@names
def test_padding_modes_differ_at_the_border(name: str, k: int) -> None:
    zeros, circular = (
        jacobian(make(name, "square", k, 1, mode).eval(), 2, SIDES[k], SIDES[k], torch.float64)
        for mode in ("zeros", "circular")
    )
    assert not zeros.is_complex()
    if k == 1 or name == "eco":  # ECO is periodic in either mode: see its docstring
        assert torch.allclose(zeros, circular, atol=1e-12)
    else:
        assert (zeros - circular).abs().max() > 1e-3


@dataclass(frozen=True)
class Young(Parametrization):
    """A kernel scaled by Young's inequality: by its largest absolute sums over (i, k, k) and over (o, k, k)."""

    orthogonal = False

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        bound = (weight.abs().sum((1, 2, 3)).max() * weight.abs().sum((0, 2, 3)).max()).sqrt()
        return Kernel(weight / torch.where(bound > 0, bound, 1), geometry.padding_mode)


def test_a_new_parametrization_needs_one_class_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARAMETRIZATIONS, "young", Young)
    for shape, k, stride, mode in itertools.product(SHAPES, (2, 3), (1, 2), ("zeros", "circular")):
        check_singular_values("young", shape, k, stride, mode)


def test_the_suite_detects_a_broken_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Young):
        def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
            return Kernel(weight / weight.norm(), geometry.padding_mode)

    monkeypatch.setitem(PARAMETRIZATIONS, "broken", Broken)
    with pytest.raises(AssertionError):
        check_singular_values("broken", "square", 3, 1, "circular")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown parametrization 'lott': choose one of lot, soc, cayley"):
        parametrization("lott")
    with pytest.raises(InputError, match=r"an object, not the class LOT: write LOT\(\)"):
        parametrization(PARAMETRIZATIONS["lot"])  # type: ignore[arg-type]
