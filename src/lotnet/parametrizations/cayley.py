"""Cayley transform: `(I - A)(I + A)^(-1)` is orthogonal for skew `A`. It is applied at every frequency."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lotnet.linalg.fourier import transfer
from lotnet.linalg.polar import power_of_two
from lotnet.operators import Kernel, Operator, Spectrum
from lotnet.parametrizations.base import Geometry, KernelSize, Parametrization

# `I + A` has no singular value below one, so solving with it errs by about u ||A||. This keeps that below
# 1e-4 in float32, and is some ten times what kernels of 512 channels start with.
_LARGEST = 512.0


@dataclass(frozen=True)
class Cayley(Parametrization):
    """The Cayley transform at every frequency.

    A transfer matrix `[U; V]`, U square, becomes, with `A = U - U* + V* V`,

        W = [I - A; -2 V] (I + A)^(-1),    W* W = I because A + A* = 2 V* V.

    Wide matrices are transformed as their adjoints. The operator depends on the kernel's scale. The published code
    multiplies the normalised kernel by a learned number, which a free kernel already includes. The transfer matrix
    is scaled down only if `||A||_F` would exceed 512, where the solution would lose its digits.

    >>> import torch
    >>> from lotnet import OrthogonalConv2d
    >>> layer = OrthogonalConv2d(4, 4, 3, parametrization=Cayley())
    >>> layer(torch.randn(2, 4, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    def initial_weight(self, out_channels: int, in_channels: int, kernel_size: KernelSize) -> Tensor:
        """Zero if the channels are equal. Its operator is the identity: only a kernel's skew part counts."""
        if out_channels == in_channels:
            return torch.zeros(self.weight_shape(out_channels, in_channels, kernel_size))
        return super().initial_weight(out_channels, in_channels, kernel_size)

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        if geometry.kernel_size == 1:  # the same matrix at every frequency
            return Kernel(_cayley(weight.flatten(1))[..., None, None], geometry.padding_mode)
        return Spectrum(_cayley(transfer(weight, geometry.grid)), geometry.grid)


def _cayley(w: Tensor) -> Tensor:  # (..., o, i), real or complex
    o, i = w.shape[-2:]
    if o < i:
        return _cayley(w.mH.resolve_conj()).mH
    power = power_of_two(w).clamp_min(1)[..., None, None]
    u, v = (w / power).split((i, o - i), dim=-2)
    skew, gram = u - u.mH, v.mH @ v
    # With w = power (u, v) times a factor of at most one, A = factor power skew + (factor power)^2 gram.
    squares = (
        power**-2,
        (2 / _LARGEST * torch.linalg.matrix_norm(skew, keepdim=True)) ** 2,
        2 / _LARGEST * torch.linalg.matrix_norm(gram, keepdim=True),
    )
    scale = torch.stack(squares).amax(0).rsqrt()
    a = scale * skew + scale**2 * gram
    eye = torch.eye(i, dtype=w.dtype, device=w.device)
    return torch.linalg.solve(eye + a, torch.cat((eye - a, -2 * scale * v), dim=-2), left=False)
