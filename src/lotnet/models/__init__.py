"""Architectures, each a configuration that builds a network.

To add one, write one file and add one line to `MODELS`.
"""

from lotnet.models.base import ImageSpec, ModelConfig, convolution_count, describe, halvings, parameter_count
from lotnet.models.lipconvnet import LipConvnet
from lotnet.models.lipwidenet import LipWideNet
from lotnet.models.resnet import LipResNet18
from lotnet.models.size import least_training_bytes

MODELS: dict[str, type[ModelConfig]] = {
    "lipconvnet": LipConvnet,
    "lipresnet18": LipResNet18,
    "lipwidenet": LipWideNet,
}

__all__ = [
    "MODELS",
    "ImageSpec",
    "LipConvnet",
    "LipResNet18",
    "LipWideNet",
    "ModelConfig",
    "convolution_count",
    "describe",
    "halvings",
    "least_training_bytes",
    "parameter_count",
]
