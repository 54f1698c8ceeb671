"""Architectures, built from configurations. A new one is one file and one line in this table."""

from lotnet.models.base import ImageSpec, ModelConfig, describe, parameter_count
from lotnet.models.lipconvnet import LipConvnet
from lotnet.models.resnet import LipResNet18

MODELS: dict[str, type[ModelConfig]] = {
    "lipconvnet": LipConvnet,
    "lipresnet18": LipResNet18,
}

__all__ = ["MODELS", "ImageSpec", "LipConvnet", "LipResNet18", "ModelConfig", "describe", "parameter_count"]
