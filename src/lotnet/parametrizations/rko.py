"""RKO, reshaped kernel orthogonalization: the kernel as one orthonormal matrix, divided by the root of its taps."""

import math
from dataclasses import dataclass

from torch import Tensor

from lotnet.linalg.polar import accurate_polar, polar
from lotnet.operators import Kernel, Operator
from lotnet.parametrizations.base import Geometry, Parametrization, sides


@dataclass(frozen=True)
class RKO(Parametrization):
    """Reshaped kernel orthogonalization (RKO): the kernel as one orthonormal matrix, divided by the root of its taps.

    This is the older way, as in Parseval networks: orthonormalise the kernel as a matrix of out x (in kh kw) numbers.

    The matrix acts on patches. Each pixel is in at most kh kw of them, so all patches together have at most
    `sqrt(kh kw)` times the norm of the image. Divided by that root, the convolution is 1-Lipschitz. It is orthogonal
    only for one tap, and otherwise contracts, often by half. So a frozen layer is certified by the proved norm of its
    kernel, which is below one.

    Björck's iteration, with which this is usually computed, converges to the polar factor. Here the polar factor is
    computed as in LOT: with better polynomials in training, and exactly when frozen.

    >>> import torch
    >>> from lotnet import OrthogonalConv2d, freeze
    >>> layer = OrthogonalConv2d(3, 8, 3, parametrization=RKO())
    >>> float(freeze(torch.nn.Sequential(layer), image_size=8).lipschitz_bound()) < 1
    True
    """

    orthogonal = False

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        matrix = (accurate_polar if frozen else polar)(weight.flatten(1)[None])[0]
        taps = math.prod(sides(geometry.kernel_size))
        return Kernel(matrix.view_as(weight) / math.sqrt(taps), geometry.padding_mode)
