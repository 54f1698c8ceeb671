"""A wide network at one resolution, in the manner of LiResNet and BRONet, with LOT layers."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from lotnet.errors import InputError
from lotnet.layers import Centering, Normalize, OrthogonalConv2d, OrthogonalLinear
from lotnet.models.base import ImageSpec, ModelConfig

Stem = Literal["free", "orthogonal"]


@dataclass(frozen=True)
class LipWideNet(ModelConfig):
    """Wide network at one resolution: a stem that halves the image, equal convolutions, and orthogonal dense layers.

    Between them is a neck without an activation: a convolution turns each patch into one pixel, and a dense layer turns
    all pixels into the features.

    >>> import torch
    >>> from lotnet import ImageSpec
    >>> small = LipWideNet(depth=2, channels=8, dense_width=16, dense_layers=1)
    >>> network = small.build(ImageSpec(3, 32, 32, classes=10))
    >>> network(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    depth: int = 12
    """Number of convolutions of the trunk."""
    channels: int = 128
    """Channels of the trunk."""
    stem: Stem = "free"
    """First layer. free: a free kernel divided by its norm; orthogonal: as all other layers."""
    centering: bool = True
    """Subtract the mean of each channel after each convolution of the trunk."""
    patch: int = 4
    """Side of the patches that the neck turns into pixels."""
    dense_layers: int = 8
    """Number of orthogonal dense layers, each with an activation."""
    dense_width: int = 1024
    """Features of the dense layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("depth", 1), ("patch", 1), ("dense_layers", 0)):
            if getattr(self, name) < least:
                raise InputError(f"model.{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("channels", "dense_width"):
            value = getattr(self, name)
            if value < 2 or value % 2:
                raise InputError(f"model.{name} must be a positive even number, not {value}")

    @property
    def layers(self) -> int:
        return self.depth

    def build(self, images: ImageSpec) -> nn.Sequential:
        step = 2 * self.patch
        if images.height % step or images.width % step:
            raise InputError(
                f"LipWideNet needs sides that are multiples of {step}, not {images.height} x {images.width}: resize "
                "the images, or choose another model.patch"
            )
        width = self.channels
        layers: list[nn.Module] = [
            Normalize(images.mean, images.std),
            nn.Sequential(self._stem(images.channels), self.make_activation(width)),
            *(self._trunk_layer() for _ in range(self.depth)),
            self.convolution(width, width, 1, stride=self.patch, bias=False),
            nn.Flatten(),
        ]
        features = width * (images.height // step) * (images.width // step)
        neck = OrthogonalLinear(features, self.dense_width, parametrization=self.make_parametrization())
        layers.append(nn.Sequential(neck, self.make_activation(self.dense_width)))
        for _ in range(self.dense_layers):
            layers.append(nn.Sequential(self.dense(self.dense_width), self.make_activation(self.dense_width)))
        return nn.Sequential(*layers, self.make_head(self.dense_width, images.classes))

    def _stem(self, inputs: int) -> OrthogonalConv2d:
        """A kernel of 6 x 6 pixels that moves by two: 3 x 3 windows of 2 x 2 pixels."""
        if self.stem == "orthogonal":
            return self.convolution(inputs, self.channels, 3, stride=2)
        return OrthogonalConv2d(inputs, self.channels, 3, 2, padding_mode=self.padding_mode, parametrization="spectral")

    def _trunk_layer(self) -> nn.Sequential:
        convolution = self.convolution(self.channels, self.channels, 3, bias=not self.centering)
        centering = [Centering(self.channels)] if self.centering else []  # it has a bias
        return nn.Sequential(convolution, *centering, self.make_activation(self.channels))
