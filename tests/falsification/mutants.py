"""One-line mistakes, each of which the harness must detect. The table names the mistake of each mutant.

Every mutant is a context manager that changes lotnet while a network is frozen and certified.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import torch
from harness import Mutant
from torch import Tensor

from lotnet.certification import certificate
from lotnet.certification.rounding import Bounds, bounds
from lotnet.frozen import FrozenModel, FrozenResidual, convolution, freezing, pointwise
from lotnet.frozen.activations import FrozenLeakyReLU
from lotnet.frozen.branches import FrozenConcatenation
from lotnet.frozen.centering import FrozenLayerCentering
from lotnet.frozen.convolution import FrozenKernel, FrozenSeries
from lotnet.frozen.direct_sum import FrozenDirectSum
from lotnet.frozen.moves import FrozenUpsampling
from lotnet.frozen.pointwise import FrozenAveragePool, FrozenHouseholder, FrozenNormalize
from lotnet.frozen.pooling import FrozenGlobalAveragePool, FrozenNormPool
from lotnet.linalg.polar import polar
from lotnet.linalg.roundoff import Upper, gamma, unit_roundoff
from lotnet.operators import Kernel
from lotnet.parametrizations import LOT, Geometry, Spectral

Radii = Callable[..., tuple[Tensor, ...]]


@contextmanager
def _patched(target: object, name: str, value: object) -> Iterator[None]:
    with patch.object(target, name, value):
        yield


def _larger(self: FrozenResidual, direct: Upper, through: Upper) -> Upper:
    a, b = (abs(float(w)) for w in self.weights)
    return Upper(max(direct * a, through * b))


def _bounds(change: Callable[[FrozenModel, Bounds], Bounds]) -> Mutant:
    """A mutant that changes the bounds that a certificate is computed from."""
    return partial(_patched, certificate, "bounds", lambda model: change(model, bounds(model)))


def _normalisation_only(model: FrozenModel, limits: Bounds) -> Bounds:
    stds = [float(m.std.min()) for m in model.modules() if isinstance(m, FrozenNormalize)]
    return replace(limits, lipschitz=1 / min(stds))


def _without_bias(model: FrozenModel, limits: Bounds) -> Bounds:
    head = list(model)[-1]
    growth = float(gamma(head.weight.shape[1] + 1, unit_roundoff(torch.float64)))
    return replace(limits, logit_error=(limits.logit_error - growth * head.bias.abs()).clamp_min(0))


def _radii(change: Radii) -> Mutant:
    return partial(_patched, certificate, "certified_radii", partial(change, certificate.certified_radii))


def _top_nine(radii: Radii, logits: Tensor, limits: Bounds, std: float) -> tuple[Tensor, ...]:
    if logits.shape[1] <= 9:
        return radii(logits, limits, std)
    ninth = logits.topk(9, dim=1).values[:, -1:]
    return radii(torch.where(logits >= ninth, logits, -1e30), limits, std)


def _four_decimals(radii: Radii, *inputs: object) -> tuple[Tensor, ...]:
    prediction, margin, *rest = radii(*inputs)
    return (prediction, margin, *((1e4 * r).round() / 1e4 for r in rest))


def _once(radii: Radii, *inputs: object) -> tuple[Tensor, ...]:
    prediction, margin, plain, real, _ = radii(*inputs)
    return prediction, margin, plain, real, real


def _one_ulp(radii: Radii, *inputs: object) -> tuple[Tensor, ...]:
    prediction, margin, *rest = radii(*inputs)
    return (prediction, margin, *(torch.where(r > 0, torch.nextafter(r, 2 * r), r) for r in rest))


def _power_iteration(w: Tensor) -> Tensor:
    """Three power iterations from a fixed start: most libraries use this, but it gives a lower bound."""
    w = w.to(torch.complex128 if w.is_complex() else torch.float64)
    v = torch.randn(w.shape[-1], 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(w.dtype)
    for _ in range(3):
        v = w.mH @ (w @ v)
        v = v / torch.linalg.matrix_norm(v, keepdim=True).clamp_min(1e-300)
    return torch.linalg.matrix_norm(w @ v)


@contextmanager
def _power_iterations() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (convolution, pointwise):
            stack.enter_context(patch.object(module, "spectral_norm_bound", _power_iteration))
        yield


@contextmanager
def _single_precision_newton() -> Iterator[None]:
    """Float32 weights as training computes them, not shrunk, and assumed to be orthogonal."""

    def single(self: LOT, v: Tensor, frozen: bool = False) -> Tensor:
        return polar(v.to(torch.complex64 if v.is_complex() else torch.float32)).to(v.dtype)

    with (
        patch.object(LOT, "polar", single),
        patch.object(freezing, "_SHRINK", 1.0),
        _bounds(_normalisation_only)(),
    ):
        yield


@contextmanager
def _norm_of_the_reshaped_kernel() -> Iterator[None]:
    """The kernel divided by the norm of the matrix (o, i k k), a mistake of many spectral normalisations."""

    def reshaped(self: Spectral, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Kernel:
        return Kernel(weight / torch.linalg.matrix_norm(weight.flatten(1), ord=2), geometry.padding_mode)

    with (
        patch.object(Spectral, "operator", reshaped),
        patch.object(FrozenKernel, "_prove_lipschitz", lambda self: Upper(1)),
    ):
        yield


# The mistake, and the mutant that makes it.
MUTANTS: dict[str, Mutant] = {
    "max(std) for min(std)": partial(
        _patched, FrozenNormalize, "_prove_lipschitz", lambda self: Upper(1) / float(self.std.max())
    ),
    "sqrt 2 dropped": _bounds(lambda model, limits: replace(limits, pairs=limits.pairs / math.sqrt(2))),
    "L = 1 assumed of every layer": _bounds(_normalisation_only),
    "E = 0: rounding ignored": _bounds(
        lambda model, limits: replace(limits, feature_error=0.0, logit_error=torch.zeros_like(limits.logit_error))
    ),
    "rounding of the last bias ignored": _bounds(_without_bias),
    "power iteration for the norm": _power_iterations,
    "fp32 Newton, not proved": _single_precision_newton,
    "weights changed after freezing": partial(_patched, FrozenModel, "is_intact", lambda self: True),
    "LLN over the top 9 classes": _radii(_top_nine),
    "radii rounded to 4 decimals": _radii(_four_decimals),
    "residual: max for sum": partial(_patched, FrozenResidual, "_mix", _larger),
    "exponential cut, bound 1": partial(_patched, FrozenSeries, "_prove_lipschitz", lambda self: Upper(1)),
    "reflection by a rounded v, bound 1": partial(
        _patched, FrozenHouseholder, "_prove_lipschitz", lambda self: Upper(1)
    ),
    "leaky ReLU: the smaller slope": partial(
        _patched, FrozenLeakyReLU, "_prove_lipschitz", lambda self: Upper(float(self.slope.abs().min()) or 1.0)
    ),
    "global average: the plain mean's constant": partial(
        _patched, FrozenGlobalAveragePool, "_prove_lipschitz", lambda self: Upper(1) / self.spec.pixels
    ),
    "l2 pooling: of the mean square": partial(
        _patched, FrozenNormPool, "_prove_lipschitz", lambda self: Upper(1) / math.sqrt(self.spec.pixels)
    ),
    "layer centring: the norm of the diagonal": partial(
        _patched, FrozenLayerCentering, "_prove_lipschitz", lambda self: Upper(1 - 1 / self.spec.pixels)
    ),
    "concatenation: max for the root of squares": partial(
        _patched, FrozenConcatenation, "_combine", lambda self, parts: Upper(max(parts)) * float(self.scale)
    ),
    "reshaped kernel: the norm of its matrix": partial(
        _patched,
        FrozenKernel,
        "_prove_lipschitz",
        lambda self: Upper(float(torch.linalg.matrix_norm(self.kernel.double().flatten(1), ord=2))),
    ),
    "average pool: the plain mean's constant": partial(
        _patched, FrozenAveragePool, "_prove_lipschitz", lambda self: Upper(1) / math.sqrt(self.spec.size)
    ),
    "upsampling: the constant of a copy's inverse": partial(
        _patched, FrozenUpsampling, "_prove_lipschitz", lambda self: Upper(1) / math.sqrt(math.prod(self.spec.sides))
    ),
    "groups and phases: taken to be orthogonal": partial(
        _patched, FrozenDirectSum, "_prove_lipschitz", lambda self: Upper(1)
    ),
    "free kernel: norm of the reshaped kernel": _norm_of_the_reshaped_kernel,
}

# Mistakes too small to detect, because the proved error bounds are far above actual errors. They document that gap.
SURVIVORS: dict[str, Mutant] = {
    "claim B counts E once, as claim A": _radii(_once),
    "radii one ulp larger": _radii(_one_ulp),
}
