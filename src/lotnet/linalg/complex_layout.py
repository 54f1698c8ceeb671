"""Complex matrices stored as real ones, so that products of them run on tensor cores and can be exported."""

import torch
from torch import Tensor


def real_blocks(z: Tensor) -> Tensor:  # ... o i complex -> ... 2o 2i
    """Convert each complex matrix to the real matrix that acts on stacked real and imaginary parts."""
    real, imaginary = z.real, z.imag
    return torch.cat((torch.cat((real, -imaginary), dim=-1), torch.cat((imaginary, real), dim=-1)), dim=-2)


def stacked(z: Tensor) -> Tensor:  # f o i complex -> f 2o i
    """Stack real parts above imaginary parts: the layout that `real_blocks` act on."""
    return torch.cat((z.real, z.imag), dim=1)


def unstacked(parts: Tensor) -> Tensor:  # f 2o i -> f o i complex
    """The inverse of `stacked`."""
    real, imaginary = parts.chunk(2, dim=1)
    return torch.complex(real, imaginary)


def adjoint(parts: Tensor) -> Tensor:  # f 1|2 o i -> f 1|2 i o
    """Adjoint of matrices given as real (and imaginary) parts."""
    transposed = parts.mT
    return transposed if parts.shape[1] == 1 else torch.stack((transposed[:, 0], -transposed[:, 1]), dim=1)
