"""Frozen centring of each image."""

import math
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from lotnet.frozen.base import FrozenModule, ImageSize, Shape
from lotnet.frozen.pointwise import by_channel, pixel_axes
from lotnet.linalg.bounds import constant_image_norm
from lotnet.linalg.roundoff import Upper, rounding_error


class FrozenLayerCentering(FrozenModule):
    """Each channel of an image minus its mean, plus a bias: a projection, hence 1-Lipschitz, and a shift."""

    Spec = ImageSize
    TENSORS: ClassVar[Mapping[str, str]] = {"bias": "c"}
    INPUT = "c ..."
    spec: ImageSize

    bias: Tensor  # c

    def forward(self, x: Tensor) -> Tensor:
        return x - x.sum(dim=pixel_axes(x), keepdim=True) / self.spec.pixels + by_channel(self.bias, x)

    def _prove_lipschitz(self) -> Upper:
        return Upper(1)

    def _local_error(self, norm: Upper) -> Upper:
        """An entry takes part in n - 1 additions, a quotient, a difference and the bias's sum: n + 2 roundings.

        The terms' absolute values are the entry, the mean of all absolute values, and the bias.
        """
        magnitude = 2 * norm + self._bias_norm()
        return rounding_error(self.spec.pixels + 2, magnitude, self.precision)

    def output_norm(self, norm_in: float) -> Upper:
        return self._bias_norm() + norm_in

    def _bias_norm(self) -> Upper:
        return constant_image_norm(self.bias, self.spec.pixels)

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def fits(self, shape: Shape) -> bool:
        return super().fits(shape) and len(shape) > 1 and math.prod(shape[1:]) == self.spec.pixels
