"""Forms of an orthogonal convolution. All parametrizations share them, and each form has one proof of its bounds."""

from lotnet.operators.base import Operator
from lotnet.operators.direct_sum import Dilated, Grouped, Phases
from lotnet.operators.kernel import Kernel, Series, truncated_exponential
from lotnet.operators.spectrum import Blocks, Spectrum

__all__ = [
    "Blocks",
    "Dilated",
    "Grouped",
    "Kernel",
    "Operator",
    "Phases",
    "Series",
    "Spectrum",
    "truncated_exponential",
]
