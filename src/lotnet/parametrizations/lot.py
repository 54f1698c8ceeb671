"""LOT, layer-wise orthogonal training: `W = (V V^T)^(-1/2) V`, taken as a convolution."""

from dataclasses import dataclass

from torch import Tensor

from lotnet.linalg.fourier import transfer
from lotnet.linalg.polar import polar
from lotnet.parametrizations.base import FROZEN, Geometry, Parametrization
from lotnet.parametrizations.operators import Kernel, Operator, Spectrum


@dataclass(frozen=True)
class LOT(Parametrization):
    """The polar factor of every transfer matrix. Scaling the kernel does not change the operator."""

    tolerance: float = 1e-5
    """Singular values reach 1 - tolerance in training ..."""
    condition: float = 1e3
    """... at frequencies whose condition number is at most this."""

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        accuracy = FROZEN if frozen else {"tolerance": self.tolerance, "condition": self.condition}
        if geometry.kernel_size == 1:  # the same matrix at every frequency
            w = polar(weight.flatten(1), **accuracy)
            return Kernel(w[..., None, None], geometry.padding_mode)
        transfers = transfer(weight, geometry.grid)
        return Spectrum(polar(transfers, **accuracy), geometry.grid)
