"""lotnet: image classifiers whose predictions come with a proof."""

from lotnet.frozen import FrozenModel
from lotnet.layers import (
    AveragePool,
    Centering,
    ConvexResidual,
    Householder,
    InvertibleDownsampling,
    MaxMin,
    MaxPool,
    Normalize,
    NormalizedLinear,
    OrthogonalConv2d,
    OrthogonalLinear,
    freeze,
)
from lotnet.parametrizations import LOT
from lotnet.pretrained import from_pretrained, load, save_pretrained

__version__ = "0.1.0"

__all__ = [
    "LOT",
    "AveragePool",
    "Centering",
    "ConvexResidual",
    "FrozenModel",
    "Householder",
    "InvertibleDownsampling",
    "MaxMin",
    "MaxPool",
    "Normalize",
    "NormalizedLinear",
    "OrthogonalConv2d",
    "OrthogonalLinear",
    "freeze",
    "from_pretrained",
    "load",
    "save_pretrained",
]
