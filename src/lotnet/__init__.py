"""lotnet: image classifiers whose predictions come with a proof.

    model = lotnet.load("lipconvnet5-cifar10")
    for certificate in lotnet.certify(model, images):
        print(certificate.prediction, certificate.radius_float)

The names below are imported when they are first used, so that `lotnet --help` does not wait for PyTorch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lotnet.certification import Certificate, Certificates, certify
    from lotnet.conversion import convert
    from lotnet.frozen import FrozenModel
    from lotnet.layers import (
        Abs,
        AveragePool,
        Centering,
        ChannelShift,
        Concatenation,
        ConvexResidual,
        FullSort,
        GlobalAveragePool,
        GlobalNormPool,
        GroupSort,
        Householder,
        InvertibleDownsampling,
        InvertibleUpsampling,
        LayerCentering,
        MaxMin,
        MaxPool,
        Normalize,
        NormalizedLinear,
        NormPool,
        OrthogonalConv1d,
        OrthogonalConv2d,
        OrthogonalConvTranspose2d,
        OrthogonalLinear,
        freeze,
    )
    from lotnet.load_model import load
    from lotnet.models import ImageSpec, LipConvnet, LipResNet18, LipWideNet
    from lotnet.orthogonalize import CapturedGradients, orthogonalized
    from lotnet.parametrizations import BCOP, ECO, LOT, RKO, SOC, Cayley, Spectral
    from lotnet.prediction import Prediction, predict
    from lotnet.pretrained import save_pretrained
    from lotnet.training.run import train

__version__ = "0.2.0"

__all__ = [
    "BCOP",
    "ECO",
    "LOT",
    "RKO",
    "SOC",
    "Abs",
    "AveragePool",
    "CapturedGradients",
    "Cayley",
    "Centering",
    "Certificate",
    "Certificates",
    "ChannelShift",
    "Concatenation",
    "ConvexResidual",
    "FrozenModel",
    "FullSort",
    "GlobalAveragePool",
    "GlobalNormPool",
    "GroupSort",
    "Householder",
    "ImageSpec",
    "InvertibleDownsampling",
    "InvertibleUpsampling",
    "LayerCentering",
    "LipConvnet",
    "LipResNet18",
    "LipWideNet",
    "MaxMin",
    "MaxPool",
    "NormPool",
    "Normalize",
    "NormalizedLinear",
    "OrthogonalConv1d",
    "OrthogonalConv2d",
    "OrthogonalConvTranspose2d",
    "OrthogonalLinear",
    "Prediction",
    "Spectral",
    "certify",
    "convert",
    "freeze",
    "load",
    "orthogonalized",
    "predict",
    "save_pretrained",
    "train",
]
_MODULES = (
    "layers",
    "parametrizations",
    "models",
    "conversion",
    "orthogonalize",
    "frozen",
    "pretrained",
    "certification",
    "prediction",
    "load_model",
    "training.run",
)
"""Modules that define the public names. Each name is in the `__all__` of exactly one module."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        homes = (importlib.import_module(f"lotnet.{home}") for home in _MODULES)
        return next(getattr(home, name) for home in homes if name in home.__all__)
    try:
        return importlib.import_module(f"lotnet.{name}")  # so that `lotnet.layers` works after `import lotnet`
    except ModuleNotFoundError as error:
        if error.name != f"lotnet.{name}":  # the module exists, but one of its own imports is missing
            raise
        raise AttributeError(f"module 'lotnet' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
