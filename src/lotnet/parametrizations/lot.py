"""LOT (layer-wise orthogonal training): `W = (V V^T)^(-1/2) V`, where V is a convolution."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lotnet.errors import InputError
from lotnet.kernels import dispatch
from lotnet.kernels.spectrum_blocks import spectrum_blocks
from lotnet.kernels.streams import concurrently
from lotnet.linalg import polar_planes
from lotnet.linalg.complex_layout import adjoint
from lotnet.linalg.fourier import distinct_parts, distinct_transfers, expand, joined_parts, spectrum_index
from lotnet.linalg.polar import accurate_polar, polar, sigma_min
from lotnet.operators import Blocks, Grouped, Kernel, Operator, Spectrum
from lotnet.parametrizations.base import Geometry, Parametrization


@dataclass(frozen=True)
class LOT(Parametrization):
    """Layer-wise orthogonal training (LOT): the polar factor at every frequency. The kernel's scale has no effect.

    >>> from lotnet import OrthogonalConv2d
    >>> layer = OrthogonalConv2d(4, 4, 3, parametrization=LOT(tolerance=1e-4))
    """

    tolerance: float = 1e-5
    """Smallest singular value in training is at least 1 - tolerance, up to the condition number below."""
    condition: float = 1e3
    """Largest condition number of a frequency that reaches the tolerance."""

    def __post_init__(self) -> None:
        if not (1e-16 <= self.tolerance < 1 and 1 <= self.condition <= 1e15):
            raise InputError(
                f"LOT takes a tolerance from 1e-16 to below 1 and a condition from 1 to 1e15, not {self.tolerance} and "
                f"{self.condition}: the defaults are 1e-5 and 1e3"
            )

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        return operator_from_matrices([self.polar(v, frozen) for v in matrices(weight, geometry)], geometry)

    def grouped(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        """The matrices of all groups are one batch."""
        return self.operator(weight, geometry, frozen)

    def polar(self, v: Tensor, frozen: bool = False) -> Tensor:
        return accurate_polar(v) if frozen else polar(v, tolerance=self.tolerance, condition=self.condition)

    def polar_of_parts(self, v: Tensor) -> Tensor:  # f 1|2 o i
        """`polar` on tensor cores: input and output are real and imaginary parts."""
        o, i = v.shape[-2:]
        lower = sigma_min(min(o, i), self.condition)
        if o <= i:
            return polar_planes.polar(v, lower, self.tolerance)
        return adjoint(polar_planes.polar(adjoint(v), lower, self.tolerance))


# Real matrices have a batch of their own from this many channels on. Below, that would save less time than it takes to
# launch, so they are computed as complex ones.
_MIN_CHANNELS_TO_SPLIT = 256


def matrices(weight: Tensor, geometry: Geometry) -> list[Tensor]:  # n g o i each, n g as one
    """Batches of the matrices whose polar factors make up the operator of a kernel, for all groups."""
    size = (-1, geometry.out_channels, geometry.in_channels)
    if geometry.kernel_size == 1:  # the same matrix at every frequency
        return [weight.reshape(size)]
    reals, pairs = (v.view(size) for v in distinct_transfers(weight, geometry.grid))
    return [reals, pairs] if _splits(geometry) else [torch.cat((reals.to(pairs.dtype), pairs))]


def operator_from_matrices(factors: Sequence[Tensor], geometry: Geometry) -> Operator:
    """The operator with these polar factors; the inverse of `matrices`."""
    if geometry.kernel_size == 1:
        return _one_tap(factors[0], geometry)
    if len(factors) == 2:
        reals, pairs = factors
    else:  # the imaginary parts of the first are still zero
        count = geometry.grid.self_conjugates * geometry.groups
        reals, pairs = factors[0][:count].real, factors[0][count:]
    rows = (-1, geometry.groups * geometry.out_channels, geometry.in_channels)
    transfers = expand(reals.reshape(rows), pairs.reshape(rows), geometry.grid)
    return Spectrum(transfers if geometry.groups == 1 else transfers.unflatten(1, (geometry.groups, -1)), geometry.grid)


def _splits(geometry: Geometry) -> bool:
    return min(geometry.out_channels, geometry.in_channels) >= _MIN_CHANNELS_TO_SPLIT


def _one_tap(factors: Tensor, geometry: Geometry) -> Operator:  # g o i
    kernels = [Kernel(w[:, :, None, None], geometry.padding_mode) for w in factors]
    return kernels[0] if geometry.groups == 1 else Grouped(tuple(kernels))


def operators(layers: Sequence[tuple[LOT, Tensor, Geometry]]) -> list[Operator]:
    """Operators of many layers, with their polar factors computed together."""
    geometries = [geometry for _, _, geometry in layers]
    return [joined(factors, geometry) for factors, geometry in zip(polar_factors(layers), geometries, strict=True)]


def polar_factors(layers: Sequence[tuple[LOT, Tensor, Geometry]]) -> list[list[Tensor]]:
    """The polar factors of many layers, with one call of `polar` for all matrices of one shape, dtype and settings.

    A deep network has many layers of one shape. Batched together they fill a GPU, most of which one layer leaves idle.
    If TF32 products are enabled, they are computed on tensor cores, from separate real and imaginary parts.
    """
    if not layers:
        return []
    batches = split([(weight, geometry) for _, weight, geometry in layers])
    polar_of = LOT.polar_of_parts if _in_parts(batches[0]) else LOT.polar
    groups: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for n, (lot, _, _) in enumerate(layers):
        for part, v in enumerate(batches[n]):
            groups[lot, v.shape[1:], v.dtype].append((n, part))
    together = [torch.cat([batches[n][part] for n, part in members]) for members in groups.values()]
    jobs = [
        partial(polar_of, layers[members[0][0]][0], v) for members, v in zip(groups.values(), together, strict=True)
    ]
    for members, factors in zip(groups.values(), concurrently(jobs, like=together[0]), strict=True):
        for (n, part), w in zip(members, factors.split([len(batches[n][part]) for n, part in members]), strict=True):
            batches[n][part] = w
    return batches


def split(kernels: Sequence[tuple[Tensor, Geometry]]) -> list[list[Tensor]]:
    """The matrices of each kernel: as real and imaginary parts if tensor cores may be used for all of them."""
    fast = all(dispatch.tensor_cores_allowed(weight) for weight, _ in kernels)
    return [parts(weight, geometry) if fast else matrices(weight, geometry) for weight, geometry in kernels]


def joined(factors: Sequence[Tensor], geometry: Geometry) -> Operator:
    """The operator with these polar factors; the inverse of `split`."""
    return operator_from_parts(factors, geometry) if _in_parts(factors) else operator_from_matrices(factors, geometry)


def _in_parts(factors: Sequence[Tensor]) -> bool:
    return factors[0].ndim == 4


def parts(weight: Tensor, geometry: Geometry) -> list[Tensor]:
    """`matrices` as separate real and imaginary parts: (n g, 1, o, i) if they are real, else (n g, 2, o, i)."""
    if geometry.kernel_size == 1:
        return [weight.reshape(-1, 1, geometry.out_channels, geometry.in_channels)]
    found = distinct_parts(weight, geometry.grid) if _splits(geometry) else (joined_parts(weight, geometry.grid),)
    return [v.unflatten(2, (geometry.groups, -1)).transpose(1, 2).flatten(0, 1) for v in found]


def operator_from_parts(factors: Sequence[Tensor], geometry: Geometry) -> Operator:
    """The operator with these polar factors; the inverse of `parts`."""
    groups = geometry.groups
    if geometry.kernel_size == 1:
        return _one_tap(factors[0][:, 0], geometry)
    rows = [v.unflatten(0, (-1, groups)).transpose(1, 2).flatten(2, 3) for v in factors]  # n 1|2 go i
    reals, pairs = rows if len(rows) == 2 else (rows[0].new_empty(0), rows[0])
    index = spectrum_index(geometry.grid, pairs.device)
    blocks = spectrum_blocks(reals, pairs, index)  # f 2go 2i
    if groups > 1:
        blocks = blocks.unflatten(1, (2, groups, -1)).transpose(1, 2).flatten(2, 3)
    return Blocks(blocks, geometry.grid)
