"""Centring of each image, in place of LayerNorm."""

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, Shape
from lotnet.frozen.centering import FrozenLayerCentering
from lotnet.frozen.pointwise import by_channel, image_settings, pixel_axes
from lotnet.layers.base import LipschitzLayer, check_floating, check_sizes


class LayerCentering(LipschitzLayer):
    """Subtract its mean from each channel of each image or sequence, and add a trained bias per channel.

    Removing a mean is a projection, so it is 1-Lipschitz. Dividing by a standard deviation would not be.

    >>> LayerCentering(1)(torch.tensor([1.0, 3.0]).view(1, 1, 1, 2)).flatten().tolist()
    [-1.0, 1.0]
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        check_sizes(channels=channels)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        self._check(tuple(x.shape))
        check_floating(x)
        return x - x.mean(dim=pixel_axes(x), keepdim=True) + by_channel(self.bias.to(x.dtype), x)

    def _check(self, shape: Shape) -> None:
        if len(shape) not in (3, 4) or shape[1] != len(self.bias):
            raise InputError(
                f"this LayerCentering takes images with {len(self.bias)} channels, not a tensor of shape {shape}: "
                "set channels to match"
            )

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        self._check((1, *shape))  # one bias for many channels would be broadcast, and its norm understated
        settings = image_settings(shape)
        return FrozenLayerCentering(dtype, settings, {"bias": self.bias.detach().double().cpu()})

    def extra_repr(self) -> str:
        return f"{len(self.bias)}"
