"""Layers that are 1-Lipschitz in the l2 norm."""

from lotnet.layers.activations import Abs, FullSort, GroupSort, Householder, MaxMin
from lotnet.layers.base import LipschitzLayer, freeze
from lotnet.layers.branches import Concatenation
from lotnet.layers.centering import LayerCentering
from lotnet.layers.conv import OrthogonalConv2d
from lotnet.layers.conv1d import OrthogonalConv1d
from lotnet.layers.linear import NormalizedLinear, OrthogonalLinear
from lotnet.layers.moves import ChannelShift, InvertibleUpsampling
from lotnet.layers.pooling import GlobalAveragePool, GlobalNormPool, NormPool
from lotnet.layers.structure import (
    AveragePool,
    Centering,
    ConvexResidual,
    InvertibleDownsampling,
    MaxPool,
    Normalize,
)
from lotnet.layers.transposed import OrthogonalConvTranspose2d

__all__ = [
    "Abs",
    "AveragePool",
    "Centering",
    "ChannelShift",
    "Concatenation",
    "ConvexResidual",
    "FullSort",
    "GlobalAveragePool",
    "GlobalNormPool",
    "GroupSort",
    "Householder",
    "InvertibleDownsampling",
    "InvertibleUpsampling",
    "LayerCentering",
    "LipschitzLayer",
    "MaxMin",
    "MaxPool",
    "NormPool",
    "Normalize",
    "NormalizedLinear",
    "OrthogonalConv1d",
    "OrthogonalConv2d",
    "OrthogonalConvTranspose2d",
    "OrthogonalLinear",
    "freeze",
]
