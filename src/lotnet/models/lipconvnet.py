"""LipConvnet, the architecture of SOC and LOT."""

from dataclasses import dataclass

from torch import nn

from lotnet.errors import InputError
from lotnet.layers import ConvexResidual, Normalize
from lotnet.models.base import ImageSpec, ModelConfig, halvings


@dataclass(frozen=True)
class LipConvnet(ModelConfig):
    """LipConvnet, the paper's network: up to five stages of depth/5 convolutions with activations.

    The last layer of a stage halves the side and doubles the channels; in the last stage it has a 1 x 1 kernel. Layers
    that are neither first nor last in their stage are averaged with their input. At depths 5 and 10 there are no such
    layers.

    >>> import torch
    >>> from lotnet import ImageSpec
    >>> network = LipConvnet(depth=10, channels=8).build(ImageSpec(3, 32, 32, classes=10))
    >>> network(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    depth: int = 5
    """Number of convolutions at side 32: 5, 10, ..., 40. Smaller images have fewer stages."""
    channels: int = 32
    """Channels of the first stage."""
    residual: bool = True
    """Average the inner layers with their input."""
    mix: float = 0.5
    """Weight of the input in that average."""
    trainable_mix: bool = False
    """Learn the weight, layer by layer."""
    dense_layers: int = 0
    """Number of orthogonal dense layers, each with an activation, before the head; the paper has none."""
    full_depth: bool = False
    """Keep `depth` layers also where the image halves fewer than five times: further stages keep side and channels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth < 5 or self.depth % 5:
            raise InputError(f"model.depth must be a multiple of 5 (5, 10, ..., 40), not {self.depth}")
        if self.channels < 2 or self.channels % 2:
            raise InputError(f"model.channels must be a positive even number, not {self.channels}")
        if self.dense_layers < 0:
            raise InputError(f"model.dense_layers must be at least 0, not {self.dense_layers}")

    @property
    def layers(self) -> int:
        return self.depth

    def build(self, images: ImageSpec) -> nn.Sequential:
        halved = self._halvings(images)
        stages = 5 if self.full_depth else halved
        layers: list[nn.Module] = [Normalize(images.mean, images.std)]
        channels, width = images.channels, self.channels
        per_stage = self.depth // 5
        for stage in range(stages):
            for n in range(per_stage):
                last = n == per_stage - 1
                kernel = 1 if last and stage == stages - 1 else 3
                if self.padding_mode == "circular":  # the kernel must fit the periodic image
                    kernel = min(kernel, min(images.height, images.width) >> min(stage + last, halved))
                halves = last and stage < halved
                outputs = 2 * width if halves else width
                convolution = self.convolution(channels, outputs, kernel, stride=2 if halves else 1)
                layer = nn.Sequential(convolution, self.make_activation(outputs))
                inner = self.residual and n > 0 and not last
                layers.append(ConvexResidual(layer, self.mix, self.trainable_mix) if inner else layer)
                channels = outputs
            width = outputs
        features = channels * (images.height >> halved) * (images.width >> halved)
        layers.append(nn.Flatten())
        for _ in range(self.dense_layers):
            layers.append(nn.Sequential(self.dense(features), self.make_activation(features)))
        return nn.Sequential(*layers, self.make_head(features, images.classes))

    def _halvings(self, images: ImageSpec) -> int:
        count = halvings(images.height, images.width)
        if count < 1 and not self.full_depth:
            raise InputError(
                f"LipConvnet halves the image, and {images.height} x {images.width} is odd: resize to an even side, or "
                "set model.full_depth"
            )
        return count
