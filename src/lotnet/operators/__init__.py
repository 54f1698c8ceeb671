"""Forms of a linear convolution, shared by all parametrizations.

`Spectrum`, `Kernel` and `Series` have proofs of their own. Any other form is frozen as its dense matrix. `Blocks` is
the layout of a `Spectrum` in training.
"""

from lotnet.operators.base import Operator
from lotnet.operators.kernel import Kernel, Series, truncated_exponential
from lotnet.operators.spectrum import Blocks, Spectrum

__all__ = ["Blocks", "Kernel", "Operator", "Series", "Spectrum", "truncated_exponential"]
