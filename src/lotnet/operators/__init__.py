"""Forms of an orthogonal convolution. All parametrizations share them, and each form has one proof of its bounds."""

from lotnet.operators.base import Operator
from lotnet.operators.kernel import Kernel, Series, truncated_exponential
from lotnet.operators.spectrum import Blocks, Spectrum

__all__ = ["Blocks", "Kernel", "Operator", "Series", "Spectrum", "truncated_exponential"]
