"""Spectral normalisation: the kernel divided by its largest singular value."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lotnet.linalg.bounds import spectral_norm_bound
from lotnet.linalg.fourier import transfer
from lotnet.linalg.polar import power_of_two
from lotnet.operators import Kernel, Operator
from lotnet.parametrizations.base import Geometry, Parametrization

_SQUARINGS = 14


@dataclass(frozen=True)
class Spectral(Parametrization):
    """Spectral normalisation: the kernel divided by its largest singular value. The others may be small.

    The norm is the largest over the frequencies of the periodic grid. A zero-padded image is part of that grid, so the
    same number bounds its convolution. In training the norm is an estimate from matrix products, at most 0.01 % too
    large up to rounding, which a CUDA graph can record. A frozen kernel is divided by a proved bound.

    >>> import torch
    >>> from lotnet import OrthogonalConv2d
    >>> layer = OrthogonalConv2d(4, 4, 3, parametrization=Spectral())
    >>> layer(torch.randn(2, 4, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    orthogonal = False

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        weight = weight / power_of_two(weight.flatten(1))
        transfers = transfer(weight, geometry.grid) if geometry.kernel_size != 1 else weight.flatten(1)[None]
        norm = spectral_norm_bound(transfers).max().to(weight.dtype) if frozen else estimated_norm(transfers)
        return Kernel(weight / _or_one(norm), geometry.padding_mode)


def estimated_norm(v: Tensor) -> Tensor:  # f o i -> ()
    """The largest singular value over a batch of matrices with entries up to one, and its gradient.

    It is the Schatten p-norm, `(sum of s^p)^(1/p)` with `p = 2^16`, from repeated squaring of the Gram matrix: at most
    `rank^(1/p)` times too large. The gradient is that of `|V u|` for the singular vector u, so only one matrix has a
    gradient.
    """
    x = v if v.shape[-2] >= v.shape[-1] else v.mH
    with torch.no_grad():
        power = x.mH @ x
        logarithm = torch.zeros(len(x), dtype=x.real.dtype, device=x.device)  # of the square of the norm
        for squarings in range(_SQUARINGS + 1):
            size = torch.linalg.matrix_norm(power)
            logarithm = logarithm + size.log() / 2**squarings  # minus infinity for a zero matrix
            power = power / _or_one(size)[:, None, None]
            if squarings < _SQUARINGS:
                power = power @ power
        norms = (logarithm / 2).exp()
        worst = norms.argmax().view(1)
        columns = power.index_select(0, worst)[0]
        u = columns.index_select(1, columns.diagonal().real.argmax().view(1))
        u = u / _or_one(torch.linalg.vector_norm(u))
    gain = torch.linalg.vector_norm(x.index_select(0, worst)[0] @ u)
    return norms.max() * (gain / _or_one(gain.detach()))


def _or_one(size: Tensor) -> Tensor:
    """The size, or one where it is zero, to divide by."""
    return torch.where(size > 0, size, 1)
