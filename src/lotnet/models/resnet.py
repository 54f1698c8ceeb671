"""The paper's 1-Lipschitz ResNet-18."""

from dataclasses import dataclass

from torch import nn

from lotnet.errors import InputError
from lotnet.layers import AveragePool, Centering, ConvexResidual, Normalize
from lotnet.models.base import ImageSpec, ModelConfig


@dataclass(frozen=True)
class LipResNet18(ModelConfig):
    """1-Lipschitz ResNet-18: orthogonal convolutions, averages as residual connections, and batch norms of scale one.

    >>> import torch
    >>> from lotnet import ImageSpec
    >>> network = LipResNet18(channels=4).build(ImageSpec(3, 32, 32, classes=10))
    >>> network(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    channels: int = 64
    """Channels of the first stage; three more double them."""

    @property
    def layers(self) -> int:
        return 18

    def build(self, images: ImageSpec) -> nn.Sequential:
        if images.height % 8 or images.width % 8:
            raise InputError(
                f"LipResNet18 halves the image three times, and {images.height} x {images.width} is no multiple of 8: "
                "resize the images"
            )
        width = self.channels
        layers: list[nn.Module] = [
            Normalize(images.mean, images.std),
            self.convolution(images.channels, width, 3),
            Centering(width),
            self.make_activation(width),
        ]
        inputs = width
        for outputs, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
            layers += [self._block(inputs, outputs, stride), self.make_activation(outputs)]
            layers += [self._block(outputs, outputs, 1), self.make_activation(outputs)]
            inputs = outputs
        side = min(images.height, images.width) // 8
        features = inputs * (images.height // 8 // side) * (images.width // 8 // side)
        layers += [AveragePool(side), nn.Flatten(), self.make_head(features, images.classes)]
        return nn.Sequential(*layers)

    def _block(self, inputs: int, outputs: int, stride: int) -> ConvexResidual:
        block = nn.Sequential(
            self.convolution(inputs, outputs, 3, stride),
            Centering(outputs),
            self.make_activation(outputs),
            self.convolution(outputs, outputs, 3),
            Centering(outputs),
        )
        shortcut = None
        if stride > 1 or inputs != outputs:
            shortcut = nn.Sequential(self.convolution(inputs, outputs, 1, stride), Centering(outputs))
        return ConvexResidual(block, shortcut=shortcut)
