"""Layers that are 1-Lipschitz in the l2 norm."""

from lotnet.layers.activations import Abs, FullSort, GroupSort, Householder, MaxMin
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
    "Abs",
    "AveragePool",
    "Centering",
    "ConvexResidual",
    "FullSort",
    "GroupSort",
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
