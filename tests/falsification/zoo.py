"""Random networks whose certificates are tight, with images so close to a boundary that rounding matters.

`network(seed)` is a function of its seed. A body is drawn from `BODIES`; the last layer is then chosen so that the
difference of its first two rows points along the body's most sensitive direction: there the Lipschitz bound is
attained, and a radius that is a little too large is wrong. Biases put one image on the boundary of these two
classes, and the others are its neighbours at distances from 1e-10 to 0.1. Some biases are huge, so that logits round
coarsely.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lotnet.frozen import FrozenModel, FrozenModule
from lotnet.frozen.base import Shape
from lotnet.frozen.model import assemble
from lotnet.layers import (
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
from lotnet.parametrizations import PARAMETRIZATIONS, SOC

IMAGES = 160
OFFSETS = (0.0, 0.0, 1.0, 1e3, 1e6)  # of all logits


@dataclass(frozen=True)
class Case:
    """A frozen network and images for it, float64 in [0, 1]."""

    seed: int
    kind: str
    model: FrozenModel
    images: Tensor


def network(seed: int, images: int = IMAGES) -> Case:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    kind = list(BODIES)[seed % len(BODIES)]
    shape, layers = BODIES[kind](rng)
    dtype = torch.float64 if rng.random() < 0.2 else torch.float32
    body = freeze(nn.Sequential(*layers, nn.Flatten()), shape, dtype)
    graph = body.astype(torch.float64)
    centre = 0.3 + 0.4 * torch.rand(1, *shape, dtype=torch.float64)
    head = _head(kind, rng, graph, centre)
    offset = 0.0 if kind == "known answer" else rng.choice(OFFSETS)
    model = assemble([*body, _balanced(head, graph(centre), offset, rng, dtype)], shape, dtype)
    return Case(seed, kind, model, _neighbours(model.astype(torch.float64), centre, images))


def _head(kind: str, rng: random.Random, body: FrozenModel, centre: Tensor) -> Tensor:  # classes x features
    """Rows whose first difference is the most sensitive direction of the features."""
    jacobian = torch.autograd.functional.jacobian(lambda x: body(x).sum(0), centre).flatten(1)
    features = jacobian.shape[0]
    direction = torch.linalg.svd(jacobian).U[:, 0]
    if kind == "100 classes":
        # A dozen rows nearly equal: their logits are the largest, but the nearest boundary is another row's.
        rows = torch.randn(100, features, dtype=torch.float64)
        rows[2:14] = direction + 0.02 * rows[2:14]
        rows[0], rows[1] = direction, -direction
        return rows
    classes = rng.randint(2, 5)
    rows = torch.randn(classes, features, dtype=torch.float64)
    if classes <= features and rng.random() < 0.5:
        rows[0] = direction
        basis = torch.linalg.qr(rows.T).Q.T
        first, second = basis[0] * (basis[0] @ direction).sign(), basis[1]
        rows = basis.clone()
        rows[0], rows[1] = (first + second) / math.sqrt(2), (second - first) / math.sqrt(2)
        return rows
    rows[0], rows[1] = direction, -direction
    return rows


def _balanced(rows: Tensor, features: Tensor, offset: float, rng: random.Random, dtype: torch.dtype) -> FrozenModule:
    """The last layer, with biases such that the first two classes tie and the others come after them."""
    classes, size = rows.shape
    orthonormal = bool((rows @ rows.T - torch.eye(classes, dtype=torch.float64)).norm() < 1e-8)
    head = (OrthogonalLinear if orthonormal else NormalizedLinear)(size, classes).double()
    with torch.no_grad():
        weight, bias = head.weight, head.bias
        weight.copy_(rows.view_as(weight))
        logits = head.eval()(features)[0]
        behind = torch.tensor([0.0, 0.0, *(rng.uniform(0.2, 1) for _ in range(classes - 2))], dtype=torch.float64)
        if classes == 100:
            behind[2:14] *= 1e-3
        assert bias is not None
        bias.copy_(offset + logits[0] - logits - behind * logits.std().clamp_min(0.1))
    return head.frozen((size,), dtype)


def _neighbours(graph: FrozenModel, centre: Tensor, count: int) -> Tensor:
    """Images on either side of the boundary nearest to `centre`, and some random ones."""

    def gradient(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        logits = graph(x)[0]
        gap = logits[0] - logits[1]
        return gap.detach(), torch.autograd.grad(gap, x)[0]

    for _ in range(3):  # Newton's method: rounded biases left a small gap
        gap, slope = gradient(centre)
        centre = (centre - gap * slope / slope.square().sum().clamp_min(1e-300)).clamp(0, 1)
    _, slope = gradient(centre)
    size = 10.0 ** -(1 + 9 * torch.rand(count, *(1 for _ in centre.shape[1:]), dtype=torch.float64))
    size[::2] *= -1
    images = centre + size * slope / slope.norm().clamp_min(1e-300)
    far = torch.arange(count) % 8 == 7
    images[far] += 0.2 * torch.randn_like(images[far])
    return images.clamp(0, 1)


def _normalize(rng: random.Random, channels: int, scalar: bool = False) -> Normalize:
    mean = [rng.random() for _ in range(channels)]
    std = rng.uniform(0.1, 1)
    return Normalize(mean, std if scalar else [std * rng.uniform(1, 4) for _ in range(channels)])


def _convolution(
    rng: random.Random,
    inputs: int,
    outputs: int,
    side: int,
    parametrization: str = "lot",
    padding: str | None = None,
    stride: int = 1,
) -> OrthogonalConv2d:
    padding = padding or rng.choice(("zeros", "circular"))
    limit = side // stride + (2 if padding == "zeros" else 0)
    kernels = [k for k in (1, 2, 3) if k <= limit and (parametrization != "eco" or side // stride % k == 0)]
    recipe = SOC(frozen_terms=rng.choice((4, 12))) if parametrization == "soc" else parametrization
    layer = OrthogonalConv2d(inputs, outputs, rng.choice(kernels), stride, padding_mode=padding, parametrization=recipe)
    with torch.no_grad():
        layer.weight.normal_().mul_(10 ** rng.uniform(-6, 6) if parametrization in ("lot", "eco") else 1)
        if layer.bias is not None:
            layer.bias.normal_().mul_(rng.choice((0.0, 0.1, 10.0)))
    return layer


def _known_answer(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Linear, square and circular: the distance to the boundary is known, and so is the radius up to 1e-5."""
    c, side = rng.randint(1, 3), rng.choice((2, 4, 6))
    depth = rng.randint(1, 3)
    layers = [_convolution(rng, c, c, side, padding="circular") for _ in range(depth)]
    return (c, side, side), [_normalize(rng, c, scalar=True), *layers]


def _linear(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Any parametrization, any padding, any change of channels, one std for each channel."""
    c, side = rng.randint(1, 3), rng.choice((2, 3, 4, 6))
    layers: list[nn.Module] = [_normalize(rng, c)]
    channels = c
    for _ in range(rng.randint(1, 2)):
        outputs = rng.randint(1, 4)
        layers.append(_convolution(rng, channels, outputs, side, rng.choice(list(PARAMETRIZATIONS))))
        channels = outputs
    return (c, side, side), layers


def _deep(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Activations, residuals, centering, pooling and strides."""
    c, side = rng.randint(1, 3), rng.choice((4, 6))
    layers: list[nn.Module] = [_normalize(rng, c)]
    channels, size = c, side
    for _ in range(rng.randint(2, 3)):
        stride = 2 if size % 2 == 0 and size > 2 and rng.random() < 0.4 else 1
        outputs = 2 * rng.randint(1, 3)
        kind = rng.choice(list(PARAMETRIZATIONS))
        layers.append(_convolution(rng, channels, outputs, size, kind, stride=stride))
        channels, size = outputs, size // stride
        if rng.random() < 0.3:
            layers.append(_centering(channels))
        layers.append(_activation(rng, channels))
        if rng.random() < 0.3:
            block = nn.Sequential(_convolution(rng, channels, channels, size), _activation(rng, channels))
            layers.append(ConvexResidual(block, rng.uniform(0.1, 0.9)))
    if size % 2 == 0:
        layers.append(rng.choice((AveragePool(2), MaxPool(2), InvertibleDownsampling(2))))
    return (c, side, side), layers


def _isometric(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Norm-preserving layer by layer, activations included: tight at every image."""
    c, side = 2 * rng.randint(1, 2), rng.choice((2, 4))
    layers: list[nn.Module] = [_normalize(rng, c, scalar=True)]
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(("lot", "cayley", "bcop", "eco"))
        layers += [_convolution(rng, c, c, side, kind, "circular"), _activation(rng, c)]
        if rng.random() < 0.2:
            layers.append(_centering(c))
    return (c, side, side), layers


def _residual(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Averages of the identity with something close to it, which nearly attain the sum of both constants."""
    c, side = rng.randint(1, 3), rng.choice((2, 4))
    layers: list[nn.Module] = [_normalize(rng, c, scalar=True)]
    for _ in range(rng.randint(1, 2)):
        block = OrthogonalConv2d(c, c, 1, padding_mode="circular")
        with torch.no_grad():
            block.weight.add_(0.1 * torch.randn_like(block.weight))
        layers.append(ConvexResidual(block, rng.uniform(0.2, 0.8)))
    return (c, side, side), layers


def _expansive(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """A layer that is not 1-Lipschitz: normalised rows in the middle, or a truncated exponential."""
    c, side = rng.randint(1, 3), rng.choice((2, 3))
    layers: list[nn.Module] = [_normalize(rng, c, scalar=True)]
    if rng.random() < 0.4:
        kernel = rng.choice((1, 3))
        return (c, side, side), [*layers, OrthogonalConv2d(c, 2, kernel, parametrization=SOC(frozen_terms=2))]
    layers += [nn.Flatten(), NormalizedLinear(c * side**2, 2 * rng.randint(2, 8))]
    if rng.random() < 0.5:
        layers.append(MaxMin())
    return (c, side, side), layers


def _pointwise(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Freezing shrinks nothing without convolutions, so that the rounding of v in reflections becomes visible."""
    c, side = 2, rng.choice((2, 4))
    reflection = Householder(c, rng.randint(1, 2))
    with torch.no_grad():
        reflection.angles.uniform_(-math.pi, math.pi)
    return (c, side, side), [_normalize(rng, c, scalar=True), reflection]


def _classes(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    c, side = rng.randint(2, 3), rng.choice((3, 4))
    return (c, side, side), [
        _normalize(rng, c, scalar=True),
        _convolution(rng, c, 4, side, padding="circular"),
        MaxMin(),
    ]


def _activation(rng: random.Random, channels: int) -> nn.Module:
    order = rng.randint(0, 2)
    if order == 0:
        return MaxMin()
    reflection = Householder(channels, order)
    with torch.no_grad():
        reflection.angles.uniform_(-math.pi, math.pi)
    return reflection


def _centering(channels: int) -> Centering:
    layer = Centering(channels)
    with torch.no_grad():
        layer.bias.normal_()
        layer.running_mean.normal_()
    return layer


def _activations(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Activations that sort, fold or cut off, after a convolution that preserves norms."""
    c, side = rng.choice((2, 4)), rng.choice((2, 3))
    activations = (
        GroupSort(2),
        GroupSort(c),
        FullSort(),
        Abs(rng.uniform(0.1, 1)),
        nn.ReLU(),
        nn.LeakyReLU(rng.uniform(-1, 1)),
        nn.Hardtanh(-rng.uniform(1, 5), rng.uniform(1, 5)),
    )
    layers = [_convolution(rng, c, c, side, "lot", "circular"), rng.choice(activations)]
    return (c, side, side), [_normalize(rng, c, scalar=True), *layers]


def _windows(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Pools, centring and shifts after a convolution that preserves norms."""
    c, height, width = 4, rng.choice((2, 4)), rng.choice((2, 4, 6))
    convolution = OrthogonalConv2d(c, c, rng.choice((1, 2)), padding_mode="circular")
    with torch.no_grad():
        convolution.weight.normal_()
    centering = LayerCentering(c)
    with torch.no_grad():
        centering.bias.normal_()
    choices: tuple[tuple[nn.Module, ...], ...] = (
        (GlobalAveragePool(),),
        (NormPool(2),),
        (GlobalNormPool(),),
        (centering,),
        (InvertibleUpsampling(2), MaxPool(2)),
        (InvertibleDownsampling(2), ChannelShift(3, rng.choice(("zeros", "circular")))),
        (nn.ChannelShuffle(2), nn.ZeroPad2d((1, 0, 0, 2)), LayerCentering(c)),
    )
    return (c, height, width), [_normalize(rng, c, scalar=True), convolution, *rng.choice(choices)]


def _branches(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Branches that preserve norms, concatenated: tight whatever they are."""
    c, side = rng.randint(1, 2), rng.choice((2, 3))
    first = _convolution(rng, c, rng.randint(c, 3), side, "lot", "circular")
    others = [_convolution(rng, c, c, side, "lot", "circular"), nn.Identity(), nn.Sequential()]
    branches = Concatenation(first, *others[: rng.randint(0, 3)], scaled=rng.random() < 0.5)
    return (c, side, side), [_normalize(rng, c, scalar=True), branches]


def _geometry(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Convolutions with arguments of their own."""
    return rng.choice((_parts, _transposed, _sequences, _reshaped))(rng)


def _transposed(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Transposed convolutions, with strides that may differ along the axes."""
    c, stride = rng.choice((1, 2)), rng.choice((1, 2, (1, 2)))
    recipe = rng.choice((SOC(frozen_terms=2), "lot", "bcop"))
    sizes = {"kernel_size": rng.choice((1, 2, 3)), "dilation": rng.choice((1, 1, 2)), "padding_mode": "circular"}
    if sizes["kernel_size"] == 3:  # which does not fit images of 4 x 4 if it is dilated
        sizes["dilation"] = 1
    layer = OrthogonalConvTranspose2d(c, c, stride=stride, parametrization=recipe, **sizes)
    _randomize(layer)
    return (c, 4, 4), [_normalize(rng, c, scalar=True), layer]


def _sequences(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Convolutions and pools of sequences."""
    c, length, stride = 2, rng.choice((4, 8)), rng.choice((1, 2))
    recipe = rng.choice((SOC(frozen_terms=2), "lot", "lot"))
    padding = rng.choice(("zeros", "circular"))
    layer = OrthogonalConv1d(c, 2 * c, rng.choice((1, 2)), stride, padding_mode=padding, parametrization=recipe)
    _randomize(layer)
    pools: tuple[tuple[nn.Module, ...], ...] = (
        (),
        (AveragePool(2),),
        (MaxPool(2),),
        (GlobalAveragePool(),),
        (MaxMin(),),
    )
    return (c, length), [_normalize(rng, c, scalar=True), layer, *rng.choice(pools)]


def _reshaped(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """RKO: the proved norm of the kernel is below one, and it is attained by one wave."""
    c, side = rng.choice((1, 2)), 4
    layer = OrthogonalConv2d(c, c, rng.choice((2, 3)), padding_mode="circular", parametrization="rko")
    _randomize(layer)
    return (c, side, side), [_normalize(rng, c, scalar=True), layer]


def _randomize(layer: nn.Module) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()


def _parts(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """Groups and dilations, of layers that preserve norms and of truncated exponentials, which enlarge them."""
    c, side = rng.choice((2, 4)), 4
    sizes = {
        "dilation": rng.choice((1, 2)),
        "groups": rng.choice((1, 2)),
        "padding_mode": rng.choice(("zeros", "circular")),
    }
    recipe = rng.choice((SOC(frozen_terms=2), "lot", "bcop"))
    layer = OrthogonalConv2d(c, c, rng.choice((1, 2)), parametrization=recipe, **sizes)
    _randomize(layer)
    return (c, side, side), [_normalize(rng, c, scalar=True), layer]


def _stem(rng: random.Random) -> tuple[Shape, list[nn.Module]]:
    """A free kernel divided by its norm, with a stride, before layers that preserve norms."""
    c, side, stride = rng.randint(1, 3), 4, rng.choice((1, 2))
    channels = c * stride**2 + rng.randint(0, 2)
    padding = rng.choice(("zeros", "circular", "circular"))  # an image with circular padding attains the norm
    stem = _convolution(rng, c, channels, side, "spectral", padding, stride)
    layers = [_normalize(rng, c, scalar=True), stem]
    if rng.random() < 0.5:
        layers += [_centering(channels), _convolution(rng, channels, channels, side // stride, padding="circular")]
    return (c, side, side), layers


BODIES: dict[str, Callable[[random.Random], tuple[Shape, list[nn.Module]]]] = {
    "known answer": _known_answer,
    "linear": _linear,
    "deep": _deep,
    "residual": _residual,
    "expansive": _expansive,
    "pointwise": _pointwise,
    "100 classes": _classes,
    "isometric": _isometric,
    "activations": _activations,
    "windows": _windows,
    "branches": _branches,
    "geometry": _geometry,
    "stem": _stem,
}
