"""The proved Lipschitz bound of every frozen layer is at least the norm of its Jacobian, and close to it."""

import pytest
import torch
from layer_cases import jacobian, largest_singular_value, randomize
from torch import Tensor, nn

from lotnet import (
    Abs,
    AveragePool,
    Centering,
    ChannelShift,
    Concatenation,
    ConvexResidual,
    FullSort,
    GlobalAveragePool,
    GlobalNormPool,
    GroupSort,
    Householder,
    InvertibleDownsampling,
    InvertibleUpsampling,
    LayerCentering,
    MaxMin,
    MaxPool,
    Normalize,
    NormalizedLinear,
    NormPool,
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose2d,
    OrthogonalLinear,
    freeze,
)
from lotnet.frozen import FROZEN
from lotnet.parametrizations import PARAMETRIZATIONS

SHAPE = (4, 6, 6)
LAYERS: dict[str, tuple[nn.Module, ...]] = {
    "normalize": (Normalize([0.1, 0.2, 0.3, 0.4], [0.2, 0.5, 0.3, 0.4]),),
    "centering": (Centering(4),),
    "max-min": (MaxMin(),),
    "householder 1": (Householder(4),),
    "householder 2": (Householder(4, order=2),),
    "downsampling": (InvertibleDownsampling(2),),
    "average pool": (AveragePool(3),),
    "max pool": (MaxPool(2),),
    "linear": (nn.Flatten(), OrthogonalLinear(144, 5)),
    "normalized linear": (nn.Flatten(), NormalizedLinear(144, 5)),
    "residual": (ConvexResidual(OrthogonalConv2d(4, 4, 3), 0.2),),
    "shortcut": (ConvexResidual(OrthogonalConv2d(4, 6, 3), 0.2, shortcut=OrthogonalConv2d(4, 6, 1)),),
    "group sort": (GroupSort(2),),
    "full sort": (FullSort(),),
    "abs": (Abs(0.5),),
    "relu": (nn.ReLU(),),
    "leaky relu": (nn.LeakyReLU(0.3),),
    "hardtanh": (nn.Hardtanh(-0.2, 0.6),),
    "global average pool": (GlobalAveragePool(),),
    "norm pool": (NormPool(2),),
    "global norm pool": (GlobalNormPool(),),
    "layer centering": (LayerCentering(4),),
    "concatenation": (Concatenation(OrthogonalConv2d(4, 4, 3), nn.Identity(), MaxMin()),),
    "channel shift": (OrthogonalConv2d(4, 9, 1), ChannelShift(3)),
    "channel shuffle": (OrthogonalConv2d(4, 6, 1), nn.ChannelShuffle(2)),
    "zeros around": (nn.ZeroPad2d((0, 1, 2, 0)),),
    "upsampling": (InvertibleUpsampling(2),),
    "transposed": (OrthogonalConvTranspose2d(4, 2, 3, 2),),
    "strides": (OrthogonalConv2d(4, 8, 3, (1, 2)), OrthogonalConvTranspose2d(8, 4, 3, (3, 1))),
    "groups": (OrthogonalConv2d(4, 6, 3, groups=2),),
    "several": (OrthogonalConv2d(4, 4, 3), MaxMin(), OrthogonalConv2d(4, 2, 3, 2), Householder(2), AveragePool(3)),
} | {
    f"{name} {mode} k={k} s={stride}": (OrthogonalConv2d(4, 5, k, stride, padding_mode=mode, parametrization=name),)
    for name in PARAMETRIZATIONS
    for mode in ("zeros", "circular")
    for k, stride in ((1, 1), (2, 1), (3, 1), (3, 2))
}
LAYERS |= {
    f"{name} d=2 g=2": (OrthogonalConv2d(4, 6, 3, dilation=2, groups=2, parametrization=name),)
    for name in PARAMETRIZATIONS
}


def points(seed: int, dtype: torch.dtype) -> Tensor:
    return torch.rand(SHAPE, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("name", LAYERS)
def test_the_bound_covers_the_derivative(name: str, dtype: torch.dtype) -> None:
    model = randomize(nn.Sequential(*LAYERS[name]), seed=len(name)).eval()
    frozen = freeze(model, SHAPE, dtype)
    wide = frozen.astype(torch.float64)  # the function of the stored numbers, for which the bound is proved
    bound = float(frozen.lipschitz_bound())
    linear = len(LAYERS[name]) == 1 and isinstance(LAYERS[name][0], OrthogonalConv2d | Normalize | Centering)
    largest = max(
        largest_singular_value(jacobian(wide, points(seed, torch.float64))) for seed in range(1 if linear else 3)
    )
    assert largest <= bound * (1 + 1e-14)  # the SVD itself errs by that
    assert bound <= _expected(name) * (1 + 1e-6)


def _expected(name: str) -> float:
    if name == "normalize":
        return 5.0
    if name == "normalized linear":
        return 5**0.5
    if name.startswith("soc"):  # the truncated exponential exceeds one by its own small bound
        return PARAMETRIZATIONS["soc"]().lipschitz_bound(3, frozen=True)
    return 1.0


@pytest.mark.parametrize("scale", (0.5, 1.0 + 1e-5, 3.0))
@pytest.mark.parametrize("tensor", ("real", "kernel", "matrix", "weight"))
def test_bounds_follow_the_stored_tensors(tensor: str, scale: float) -> None:
    """If the tensors are scaled after freezing, the bound changes with them. That of a dense matrix is at least one."""
    layers: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "real": (OrthogonalConv2d(2, 2, 3), (2, 6, 6)),
        "kernel": (OrthogonalConv2d(2, 2, 3, parametrization="bcop"), (2, 6, 6)),
        "matrix": (OrthogonalConv2d(2, 2, 3), (2, 2, 2)),
        "weight": (OrthogonalLinear(6, 6), (6,)),
    }
    layer, shape = layers[tensor]
    stage = layer.frozen(shape, torch.float64)
    for name in ("real", "imaginary", "kernel", "matrix", "weight"):
        if hasattr(stage, name):
            getattr(stage, name).mul_(scale)
    expected = max(1.0, scale) if tensor == "matrix" else scale
    assert float(stage.lipschitz_bound()) == pytest.approx(expected, rel=2e-7)
    assert float(stage.lipschitz_bound()) >= scale * (1 - 1e-15)


@pytest.mark.parametrize("name", LAYERS)
def test_rounding_bound_covers_the_float32_program(name: str) -> None:
    """The float32 program differs from the float64 one by less than the float32 bound."""
    model = randomize(nn.Sequential(*LAYERS[name]), seed=len(name)).eval()
    frozen = freeze(model, SHAPE)
    wide = frozen.astype(torch.float64)
    for seed in range(3):
        x = points(seed, torch.float32)
        norm = float(x.double().norm()) * (1 + 1e-12)
        error = (frozen(x[None]).double() - wide(x[None].double())).norm()
        assert error <= float(frozen.rounding_bound(0.0, norm))
        assert float(wide.rounding_bound(0.0, norm)) < 1e-11
        assert wide(x[None].double()).norm() <= float(wide.output_norm(norm)) * (1 + 1e-12)


def test_every_frozen_kind_is_covered() -> None:
    met = {
        type(module)
        for layers in LAYERS.values()
        for module in freeze(nn.Sequential(*layers), SHAPE).modules()
        if type(module) in FROZEN.values()
    }
    met.add(type(OrthogonalConv2d(2, 2, 3).frozen((2, 2, 2), torch.float32)))
    met |= {type(module) for module in OrthogonalConv1d(2, 2, 3).frozen((2, 4), torch.float32).modules()}
    grouped = OrthogonalConv2d(4, 4, 3, groups=2, parametrization="bcop")
    assert met | {type(grouped.frozen((4, 3, 3), torch.float32))} >= set(FROZEN.values())
