"""The forms an orthogonal convolution comes in. Six parametrizations share them, and proofs are written for forms."""

from lotnet.operators.base import Operator
from lotnet.operators.kernel import Kernel, Series, truncated_exponential
from lotnet.operators.spectrum import Blocks, Spectrum

__all__ = ["Blocks", "Kernel", "Operator", "Series", "Spectrum", "truncated_exponential"]
