"""Forms of a linear convolution, shared by all parametrizations.

`Spectrum`, `Kernel` and `Series` have proofs of their own. Any other form is frozen as its dense matrix. `Blocks` is
the layout of a `Spectrum` in training.
"""

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
