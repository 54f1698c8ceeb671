"""lotnet: image classifiers whose predictions come with a proof.

What this module offers is imported when it is first asked for: `lotnet --help` need not wait for PyTorch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
_HOMES = ("layers", "frozen", "parametrizations", "pretrained")
"""Subpackages that have the names above, each but once."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        homes = (importlib.import_module(f"lotnet.{home}") for home in _HOMES)
        return next(getattr(home, name) for home in homes if name in home.__all__)
    try:
        return importlib.import_module(f"lotnet.{name}")  # `import lotnet` and then `lotnet.layers`
    except ModuleNotFoundError as error:
        if error.name != f"lotnet.{name}":  # it is there, and misses something else
            raise
        raise AttributeError(f"module 'lotnet' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
