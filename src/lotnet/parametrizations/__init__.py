"""Parametrizations: maps from unconstrained kernels to orthogonal operators.

To add one, write one file and add one line to `PARAMETRIZATIONS`.
"""

from lotnet.errors import InputError
from lotnet.parametrizations.base import Geometry, Parametrization
from lotnet.parametrizations.bcop import BCOP
from lotnet.parametrizations.cayley import Cayley
from lotnet.parametrizations.eco import ECO
from lotnet.parametrizations.lot import LOT
from lotnet.parametrizations.rko import RKO
from lotnet.parametrizations.soc import SOC
from lotnet.parametrizations.spectral import Spectral

PARAMETRIZATIONS: dict[str, type[Parametrization]] = {
    "lot": LOT,
    "soc": SOC,
    "cayley": Cayley,
    "bcop": BCOP,
    "eco": ECO,
    "spectral": Spectral,
    "rko": RKO,
}


def parametrization(choice: str | Parametrization) -> Parametrization:
    """Return a parametrization by name, with default settings; an object is returned as it is."""
    if isinstance(choice, Parametrization):
        return choice
    if isinstance(choice, type):
        raise InputError(f"a parametrization is an object, not the class {choice.__name__}: write {choice.__name__}()")
    if not isinstance(choice, str) or choice not in PARAMETRIZATIONS:
        raise InputError(f"unknown parametrization {choice!r}: choose one of {', '.join(PARAMETRIZATIONS)}")
    return PARAMETRIZATIONS[choice]()


__all__ = [
    "BCOP",
    "ECO",
    "LOT",
    "PARAMETRIZATIONS",
    "RKO",
    "SOC",
    "Cayley",
    "Geometry",
    "Parametrization",
    "Spectral",
    "parametrization",
]
