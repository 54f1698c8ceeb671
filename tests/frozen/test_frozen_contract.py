"""The contract of `FrozenModule` for every entry of the table, against sixty-digit arithmetic and the SVD."""

from collections.abc import Callable

import flint
import pytest
import torch
from exact import DIGITS, real_function
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
)
from lotnet.frozen import FROZEN, FrozenModule
from lotnet.frozen.activations import FrozenHardtanh
from lotnet.frozen.base import Shape
from lotnet.frozen.moves import FrozenChannelShuffle, FrozenFromColumn, FrozenToColumn, FrozenZeroPad
from lotnet.frozen.pointwise import FrozenFlatten
from lotnet.layers import LipschitzLayer
from lotnet.layers.base import frozen_block
from lotnet.layers.plain import leaky_relu
from lotnet.parametrizations import SOC
from lotnet.parametrizations.base import PaddingMode


def randomized(layer: LipschitzLayer) -> LipschitzLayer:
    """Weights and biases of unequal sizes, running means included."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in [*layer.parameters(), *(b for b in layer.buffers() if b.numel() > 1)]:
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
        for name, tensor in layer.named_buffers():
            if name == "std":
                tensor.abs_().add_(0.1)
        bias = getattr(layer, "bias", None)
        if isinstance(bias, Tensor):
            bias.mul_(30)
    return layer


def frozen(layer: LipschitzLayer, shape: Shape) -> Callable[[torch.dtype], tuple[FrozenModule, Shape]]:
    return lambda dtype: (randomized(layer).frozen(shape, dtype), shape)


def transposed_and_dilated(
    padding_mode: PaddingMode, shape: Shape
) -> Callable[[torch.dtype], tuple[FrozenModule, Shape]]:
    """The transpose of an even kernel, dilated by 2, shifts its result."""
    layer = OrthogonalConvTranspose2d(2, 2, 2, dilation=2, padding_mode=padding_mode, bias=False)
    return lambda dtype: (next(iter(randomized(layer).frozen(shape, dtype))), shape)


EDGES = torch.tensor([-0.7, 1.1], dtype=torch.float64)

# At least one example of every kind; a kind without one fails the test below.
CASES: dict[str, list[Callable[[torch.dtype], tuple[FrozenModule, Shape]]]] = {
    "sequential": [
        lambda dtype: (
            frozen_block(nn.Sequential(randomized(OrthogonalConv2d(2, 4, 3)), MaxMin()), (2, 3, 4), dtype, "block"),
            (2, 3, 4),
        ),
        frozen(OrthogonalConv1d(2, 3, 3, stride=2), (2, 6)),
        frozen(OrthogonalConv2d(2, 4, 2, stride=(1, 2)), (2, 3, 4)),
    ],
    "residual": [frozen(ConvexResidual(OrthogonalConv2d(2, 2, 3), 0.3), (2, 4, 3))],
    "spectrum": [
        frozen(OrthogonalConv2d(2, 3, 3), (2, 3, 4)),
        frozen(OrthogonalConv2d(3, 2, 2, padding_mode="circular"), (3, 4, 3)),
        frozen(OrthogonalConv2d(2, 2, 3, parametrization="cayley"), (2, 5, 3)),
        frozen(OrthogonalConv2d(2, 2, (1, 3)), (2, 3, 4)),
        frozen(OrthogonalConv2d(4, 6, 3, groups=2), (4, 3, 4)),
    ],
    "dense": [frozen(OrthogonalConv2d(2, 3, 3), (2, 2, 2)), frozen(OrthogonalConv2d(3, 1, 3), (3, 1, 2))],
    "kernel": [
        frozen(OrthogonalConv2d(2, 3, 3, parametrization="bcop"), (2, 3, 4)),
        frozen(OrthogonalConv2d(2, 2, 2, padding_mode="circular", parametrization="spectral"), (2, 3, 4)),
        frozen(OrthogonalConv2d(2, 2, 3, parametrization="eco"), (2, 4, 5)),
        frozen(OrthogonalConv2d(2, 3, 1), (2, 3, 4)),
        frozen(OrthogonalConv2d(2, 3, 3, parametrization="rko"), (2, 3, 4)),
    ],
    "series": [
        frozen(OrthogonalConv2d(2, 3, 3, parametrization="soc"), (2, 3, 3)),
        frozen(OrthogonalConv2d(3, 2, 3, padding_mode="circular", parametrization=SOC(frozen_terms=3)), (3, 3, 4)),
        frozen(OrthogonalConv2d(2, 2, (3, 2), parametrization="soc"), (2, 3, 3)),
    ],
    "normalize": [frozen(Normalize([0.1, 0.2], [0.3, 2.0]), shape) for shape in ((2, 3, 4), (2, 5))],
    "shift": [frozen(Centering(3), shape) for shape in ((3, 2, 4), (3, 5), (3,))],
    "householder": [frozen(Householder(4), (4, 2, 3)), frozen(Householder(6, order=2), (6, 2, 2))],
    "average_pool": [
        frozen(AveragePool(2), (2, 4, 5)),
        frozen(AveragePool(3), (1, 3, 6)),
        frozen(AveragePool(3), (2, 7)),
    ],
    "linear": [frozen(NormalizedLinear(7, 5), (7,))],
    "max_min": [frozen(MaxMin(), (4, 3, 2))],
    "max_pool": [frozen(MaxPool(2), (2, 4, 5)), frozen(MaxPool(3), (2, 7))],
    "downsampling": [
        frozen(InvertibleDownsampling(2), (2, 4, 6)),
        frozen(InvertibleDownsampling((2, 3)), (2, 4, 6)),
    ],
    "flatten": [lambda dtype: (FrozenFlatten(dtype, {}, {}), (2, 3, 2))],
    "group_sort": [frozen(GroupSort(3), (6, 2, 3)), frozen(FullSort(), (4, 2, 2))],
    "leaky_relu": [
        frozen(Abs(0.5), (3, 2, 2)),
        lambda dtype: (leaky_relu(torch.tensor([0.3, -0.9, 1.0], dtype=torch.float64), dtype), (3, 2, 2)),
    ],
    "hardtanh": [lambda dtype: (FrozenHardtanh(dtype, {}, {"low": EDGES[0], "high": EDGES[1]}), (3, 2, 2))],
    "global_average_pool": [frozen(GlobalAveragePool(), shape) for shape in ((2, 3, 4), (3, 1, 5), (2, 7))],
    "norm_pool": [frozen(NormPool(2), (2, 4, 5)), frozen(NormPool(3), (1, 3, 6)), frozen(GlobalNormPool(), (2, 3, 4))],
    "layer_centering": [frozen(LayerCentering(3), shape) for shape in ((3, 2, 4), (3, 1, 1), (3, 5))],
    "concatenation": [
        frozen(Concatenation(OrthogonalConv2d(2, 3, 3), MaxMin(), nn.Identity()), (2, 4, 3)),
        frozen(Concatenation(NormalizedLinear(7, 5), nn.Identity(), scaled=False), (7,)),
    ],
    "channel_shift": [
        frozen(ChannelShift(3), (9, 3, 2)),
        frozen(ChannelShift(3, "circular"), (11, 2, 3)),
        frozen(ChannelShift(1), (2, 2, 2)),
    ],
    "channel_shuffle": [
        lambda dtype: (FrozenChannelShuffle(dtype, {"groups": 2}, {}), (6, 2, 3)),
        lambda dtype: (FrozenChannelShuffle(dtype, {"groups": 3}, {}), (6, 4)),
    ],
    "zero_pad": [
        lambda dtype: (FrozenZeroPad(dtype, {"border": [1, 0, 2, 3]}, {}), (2, 2, 3)),
        lambda dtype: (FrozenZeroPad(dtype, {"border": [2, 1]}, {}), (2, 4)),
    ],
    "grouped": [
        frozen(OrthogonalConv2d(4, 6, 3, groups=2), (4, 2, 2)),
        frozen(OrthogonalConv2d(4, 2, 3, groups=2, parametrization="soc"), (4, 2, 2)),
    ],
    "dilated": [
        frozen(OrthogonalConv2d(2, 3, 3, dilation=2), (2, 5, 4)),
        frozen(OrthogonalConv2d(2, 2, 2, dilation=(2, 1), padding_mode="circular", parametrization="bcop"), (2, 4, 3)),
        frozen(OrthogonalConv2d(4, 4, 2, dilation=(2, 3), groups=2), (4, 3, 5)),
        transposed_and_dilated("zeros", (2, 3, 5)),
        transposed_and_dilated("circular", (2, 4, 4)),
    ],
    "upsampling": [frozen(InvertibleUpsampling(2), (8, 2, 3)), frozen(InvertibleUpsampling((1, 3)), (6, 2, 3))],
    "to_column": [lambda dtype: (FrozenToColumn(dtype, {}, {}), (3, 4))],
    "from_column": [lambda dtype: (FrozenFromColumn(dtype, {}, {}), (3, 4, 1))],
}

kinds = pytest.mark.parametrize("kind", FROZEN)
precisions = pytest.mark.parametrize("dtype", (torch.float32, torch.float64))


@kinds
def test_every_kind_has_an_example_of_itself(kind: str) -> None:
    assert kind in CASES, f"the frozen module {kind} has no case here: add one"
    for case in CASES[kind]:
        assert type(case(torch.float32)[0]) is FROZEN[kind]


@precisions
@kinds
def test_rounding_bound_covers_the_program(kind: str, dtype: torch.dtype) -> None:
    """`||fl(f)(x~) - f(x)||` with x~ off by up to error_in, at several magnitudes; the real f in sixty digits."""
    for case in CASES[kind]:
        module, shape = case(dtype)
        real = real_function(module, shape)
        generator = torch.Generator().manual_seed(1)
        for scale in (1e-3, 1.0, 1e4):
            x = (torch.randn(6, *shape, generator=generator, dtype=torch.float64) * scale).to(dtype)
            moved = x + (1e-3 * scale * torch.randn(x.shape, generator=generator)).to(dtype)
            for program_input in (x, moved):
                with torch.no_grad():
                    output = module(program_input).flatten(1)
                for row, exact, before, after in zip(output, real(x), x, program_input, strict=True):
                    error_in, norm_in = distance(after, before), distance(before, torch.zeros_like(before))
                    with flint.ctx.workdps(DIGITS):
                        off = sum(((flint.arb(a) - b) ** 2 for a, b in zip(row.tolist(), exact, strict=True)), ZERO)
                        norm = sum((b**2 for b in exact), ZERO)
                        assert off <= flint.arb(float(module.rounding_bound(error_in, norm_in))) ** 2
                        assert norm <= flint.arb(float(module.output_norm(norm_in))) ** 2


ZERO = flint.arb(0)


def distance(x: Tensor, y: Tensor) -> float:
    """The distance, rounded up slightly."""
    return float((x.double() - y.double()).norm()) * (1 + 1e-12)


@precisions
@kinds
def test_lipschitz_bound_covers_the_jacobian(kind: str, dtype: torch.dtype) -> None:
    for case in CASES[kind]:
        module, shape = case(dtype)
        wide = type(module)(torch.float64, module.settings, dict(module.named_buffers(recurse=False)), *parts(module))
        for seed in range(4):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            jacobian = torch.autograd.functional.jacobian(lambda z, wide=wide: wide(z[None]).flatten(), x)
            norm = float(torch.linalg.matrix_norm(jacobian.flatten(1), ord=2))
            assert norm <= float(module.lipschitz_bound()) * (1 + 1e-14)  # the SVD itself errs by that


def parts(module: FrozenModule) -> list[FrozenModule]:
    """The modules that it is made of, in double precision."""
    return [type(c)(torch.float64, c.settings, dict(c.named_buffers(recurse=False)), *parts(c)) for c in module.parts()]


@kinds
def test_parts_are_found_by_their_names(kind: str) -> None:
    for case in CASES[kind]:
        module, _ = case(torch.float32)
        found = [module.get_submodule(name) for name in module.part_names(len(module.parts()))]
        assert all(one is other for one, other in zip(found, module.parts(), strict=True))


@kinds
def test_output_shape_is_what_forward_gives(kind: str) -> None:
    for case in CASES[kind]:
        module, shape = case(torch.float32)
        assert tuple(module(torch.rand(2, *shape)).shape[1:]) == module.output_shape(shape)


@kinds
def test_an_empty_batch_gives_an_empty_result(kind: str) -> None:
    for case in CASES[kind]:
        for dtype in (torch.float32, torch.float64):
            module, shape = case(dtype)
            assert tuple(module(torch.zeros(0, *shape, dtype=dtype)).shape) == (0, *module.output_shape(shape))


# Kinds that accept any number of channels, or any side.
POOLS = {"max_pool", "average_pool", "norm_pool"}
ANY_CHANNELS = POOLS | {"flatten", "downsampling", "hardtanh", "global_average_pool", "channel_shift"}
ANY_CHANNELS |= {"to_column", "from_column", "zero_pad"}
ANY_SIDE = POOLS | {"flatten", "max_min", "householder", "group_sort", "leaky_relu", "hardtanh"}
ANY_SIDE |= {"channel_shift", "upsampling", "to_column", "from_column", "channel_shuffle", "zero_pad"}


@kinds
def test_only_the_declared_input_shape_is_accepted(kind: str) -> None:
    """Another shape may run, by broadcasting or because a convolution fits it, but the bounds do not cover it."""
    for case in CASES[kind]:
        module, shape = case(torch.float32)
        assert module.fits(shape)
        assert module.fits((shape[0] + 5, *shape[1:])) == (kind in ANY_CHANNELS)
        for place in range(1, len(shape)):
            more_columns = kind == "from_column" and place == 2
            larger = tuple(n + (d == place) for d, n in enumerate(shape))
            assert module.fits(larger) == (kind in ANY_SIDE and not more_columns)


def test_one_mean_or_shift_is_not_broadcast_over_channels() -> None:
    for kind in ("normalize", "shift"):
        module, shape = CASES[kind][0](torch.float32)
        narrow = {name: tensor[:1] for name, tensor in module.named_buffers()}
        assert not type(module)(torch.float32, module.settings, narrow).fits(shape)


def test_a_series_of_an_even_kernel_is_not_bounded() -> None:
    """The flipped kernel has another centre, so the operator is neither skew nor normal, and it expands."""
    kernel = torch.randn(2, 2, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = kernel - kernel.transpose(0, 1).flip(2, 3)
    settings = {"height": 4, "width": 4, "padding_mode": "circular", "dilation": [1, 1], "extra": [0, 0]}
    tensors = {"kernel": kernel, "bias": torch.zeros(2)}
    module = FROZEN["series"](torch.float64, settings | {"terms": 12, "out_channels": 2}, tensors)
    impulses = torch.eye(32, dtype=torch.float64).view(32, 2, 4, 4)
    assert float(torch.linalg.matrix_norm(module(impulses).flatten(1), ord=2)) > 1.5
    assert float(module.lipschitz_bound()) == float("inf")


@pytest.mark.parametrize("kernel_size", (1, 2, 3, 4, 5))
@pytest.mark.parametrize("side", (1, 2, 5))
def test_a_normalised_kernel_is_proved_on_the_grid_it_was_normalised_on(kernel_size: int, side: int) -> None:
    layer = randomized(OrthogonalConv2d(2, 3, kernel_size, parametrization="spectral"))
    bound = float(layer.frozen((2, side, side), torch.float64).lipschitz_bound())
    assert 1 - 1e-9 <= bound <= 1 + 1e-7
