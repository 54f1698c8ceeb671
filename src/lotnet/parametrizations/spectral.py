"""Spectral normalisation: the kernel divided by its largest singular value."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lotnet.linalg.fourier import transfer
from lotnet.linalg.polar import power_of_two
from lotnet.operators import Kernel, Operator
from lotnet.parametrizations.base import Geometry, Parametrization


@dataclass(frozen=True)
class Spectral(Parametrization):
    """The classic baseline: 1-Lipschitz, but only the largest singular value is controlled.

    The norm is exact: the largest over the frequencies of the periodic grid. A zero-padded image is part of that
    grid, so the same number bounds its convolution.

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
        # Only the frequency with the largest norm has a gradient, so singular vectors are computed only there.
        worst = torch.linalg.matrix_norm(transfers.detach(), ord=2).argmax()
        norm = torch.linalg.matrix_norm(transfers[worst], ord=2)
        return Kernel(weight / torch.where(norm > 0, norm, 1), geometry.padding_mode)
