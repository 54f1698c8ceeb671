"""LipFlatnet, a network that looks at its image in one size."""

from dataclasses import dataclass

from torch import nn

from lotnet.errors import InputError
from lotnet.layers import ConvexResidual, Normalize
from lotnet.models.base import Images, ModelConfig


@dataclass(frozen=True)
class LipFlatnet(ModelConfig):
    """The shape of LiResNet and BRONet: a stem that halves the side, equal convolutions at that size, a neck that turns
    patches into single pixels of twice the channels, and orthogonal matrices. Every layer has an activation.

    LipConvnet has most of its parameters where images are 4 x 4 pixels and smaller, and there zero padding gives norm
    away; here the smallest images are read by 1 x 1 kernels and matrices.
    """

    blocks: int = 12
    """Convolutions between stem and neck."""
    channels: int = 128
    """Channels of these."""
    residual: bool = False
    """Average these with their input."""
    patch: int = 4
    """Side of the neck's patches."""
    features: int = 1024
    """Rows of the orthogonal matrices."""
    dense_layers: int = 3
    """How many of them there are; the first one reads all pixels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("channels", "features"):
            if getattr(self, name) < 2 or getattr(self, name) % 2:
                raise InputError(f"{name} must be a positive even number, not {getattr(self, name)}")
        for name in ("blocks", "patch", "dense_layers"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def layers(self) -> int:
        return self.blocks

    def build(self, images: Images) -> nn.Sequential:
        shrink = 2 * self.patch
        if images.height % shrink or images.width % shrink:
            raise InputError(
                f"LipFlatnet with patch {self.patch} makes {shrink} x {shrink} pixels one, and {images.height} x "
                f"{images.width} is no multiple of {shrink}: choose another patch or resize the images"
            )
        width = self.channels
        layers: list[nn.Module] = [Normalize(images.mean, images.std), self._layer(images.channels, width, 3, 2)]
        for _ in range(self.blocks):
            block = self._layer(width, width, 3)
            layers.append(ConvexResidual(block) if self.residual else block)
        layers += [self._layer(width, 2 * width, 1, self.patch), nn.Flatten()]
        inputs = 2 * width * (images.height // shrink) * (images.width // shrink)
        for _ in range(self.dense_layers):
            layers.append(nn.Sequential(self.dense(inputs, self.features), self.make_activation(self.features)))
            inputs = self.features
        return nn.Sequential(*layers, self.make_head(inputs, images.classes))

    def _layer(self, inputs: int, outputs: int, kernel_size: int, stride: int = 1) -> nn.Sequential:
        return nn.Sequential(self.convolution(inputs, outputs, kernel_size, stride), self.make_activation(outputs))
