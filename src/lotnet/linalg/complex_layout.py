"""Complex matrices as real ones: the form in which tensor cores, exporters and error bounds know them."""

import torch
from torch import Tensor


def real_blocks(z: Tensor) -> Tensor:  # f o i complex -> f 2o 2i
    """Each complex matrix as the real matrix that acts on stacked real and imaginary parts."""
    real, imaginary = z.real, z.imag
    return torch.cat((torch.cat((real, -imaginary), dim=2), torch.cat((imaginary, real), dim=2)), dim=1)


def stacked(z: Tensor) -> Tensor:  # f o i complex -> f 2o i
    """Real parts above imaginary parts: what `real_blocks` act on."""
    return torch.cat((z.real, z.imag), dim=1)


def unstacked(parts: Tensor) -> Tensor:  # f 2o i -> f o i complex
    real, imaginary = parts.chunk(2, dim=1)
    return torch.complex(real, imaginary)


def adjoint(parts: Tensor) -> Tensor:  # f 1|2 o i -> f 1|2 i o
    """Of matrices given as real (and imaginary) parts."""
    turned = parts.mT
    return turned if parts.shape[1] == 1 else torch.stack((turned[:, 0], -turned[:, 1]), dim=1)
