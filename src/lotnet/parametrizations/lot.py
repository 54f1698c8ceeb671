"""LOT, layer-wise orthogonal training: `W = (V V^T)^(-1/2) V`, taken as a convolution."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lotnet.linalg.concurrency import concurrently
from lotnet.linalg.fourier import distinct_transfers, expand
from lotnet.linalg.polar import accurate_polar, polar
from lotnet.parametrizations.base import Geometry, Parametrization
from lotnet.parametrizations.operators import Kernel, Operator, Spectrum


@dataclass(frozen=True)
class LOT(Parametrization):
    """The polar factor of every transfer matrix. Scaling the kernel does not change the operator."""

    tolerance: float = 1e-5
    """Singular values reach 1 - tolerance in training ..."""
    condition: float = 1e3
    """... at frequencies whose condition number is at most this."""

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        return assembled([self.polar(v, frozen) for v in matrices(weight, geometry)], geometry)

    def polar(self, v: Tensor, frozen: bool = False) -> Tensor:
        return accurate_polar(v) if frozen else polar(v, tolerance=self.tolerance, condition=self.condition)


# Below this many channels a batch of few real matrices costs more to start than it saves: they join the complex ones.
_APART = 256


def matrices(weight: Tensor, geometry: Geometry) -> list[Tensor]:
    """The batches of matrices whose polar factors make up the operator of a kernel."""
    if geometry.kernel_size == 1:  # the same matrix at every frequency
        return [weight.flatten(1)[None]]
    reals, pairs = distinct_transfers(weight, geometry.grid)
    return [reals, pairs] if min(weight.shape[:2]) >= _APART else [torch.cat((reals.to(pairs.dtype), pairs))]


def assembled(factors: Sequence[Tensor], geometry: Geometry) -> Operator:
    """The operator of these polar factors."""
    if geometry.kernel_size == 1:
        return Kernel(factors[0][0, :, :, None, None], geometry.padding_mode)
    if len(factors) == 2:
        reals, pairs = factors
    else:  # arithmetic on zero imaginary parts has kept them zero
        count = geometry.grid.own_conjugates
        reals, pairs = factors[0][:count].real, factors[0][count:]
    return Spectrum(expand(reals, pairs, geometry.grid), geometry.grid)


def operators(layers: Sequence[tuple[LOT, Tensor, Geometry]]) -> list[Operator]:
    """Those of many layers, with one call of `polar` for all matrices of one shape, dtype and settings.

    A deep network has many layers alike; together they fill a GPU that each of them alone leaves idle.
    """
    batches = [matrices(weight, geometry) for _, weight, geometry in layers]
    groups: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for n, (lot, _, _) in enumerate(layers):
        for part, v in enumerate(batches[n]):
            groups[lot, v.shape[1:], v.dtype].append((n, part))
    together = [torch.cat([batches[n][part] for n, part in members]) for members in groups.values()]
    jobs = [partial(layers[members[0][0]][0].polar, v) for members, v in zip(groups.values(), together, strict=True)]
    for members, factors in zip(groups.values(), concurrently(jobs, like=together[0]), strict=True):
        for (n, part), w in zip(members, factors.split([len(batches[n][part]) for n, part in members]), strict=True):
            batches[n][part] = w
    return [assembled(factors, geometry) for factors, (_, _, geometry) in zip(batches, layers, strict=True)]
