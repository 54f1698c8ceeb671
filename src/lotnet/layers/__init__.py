"""Layers that are 1-Lipschitz in the l2 norm."""

from lotnet.layers.activations import Householder, MaxMin
from lotnet.layers.base import LipschitzLayer, freeze
from lotnet.layers.conv import OrthogonalConv2d
from lotnet.layers.linear import NormalizedLinear, OrthogonalLinear
from lotnet.layers.structure import (
    AveragePool,
    Centering,
    ConvexResidual,
    InvertibleDownsampling,
    MaxPool,
    Normalize,
)

__all__ = [
    "AveragePool",
    "Centering",
    "ConvexResidual",
    "Householder",
    "InvertibleDownsampling",
    "LipschitzLayer",
    "MaxMin",
    "MaxPool",
    "Normalize",
    "NormalizedLinear",
    "OrthogonalConv2d",
    "OrthogonalLinear",
    "freeze",
]
