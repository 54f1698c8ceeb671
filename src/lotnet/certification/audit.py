"""Layer by layer: what is proved of a frozen model, and how long the proof took."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, FrozenResidual, FrozenSequential
from lotnet.frozen.model import FrozenModel


@dataclass(frozen=True)
class AuditRow:
    """One frozen layer."""

    name: str
    kind: str
    lipschitz_bound: float
    """Proved for the stored tensors."""
    orthogonality_error: float | None
    """Root mean square of the entries of `W W* - I` times the size's root; None where the layer is not a matrix."""
    seconds: float


def audit(model: FrozenModel) -> Iterator[AuditRow]:
    """Prove the bound of each layer in turn; the model's own bound then costs nothing more."""
    if not isinstance(model, FrozenModel):
        raise InputError(
            f"a {type(model).__name__} cannot be certified: freeze it first with lotnet.freeze(model, image_size)"
        )
    for name, module in leaves(model, "model"):
        start = time.perf_counter()
        bound = float(module.lipschitz_bound())
        error = module.orthogonality_error()
        yield AuditRow(name, type(module).__name__.removeprefix("Frozen"), bound, error, time.perf_counter() - start)


def leaves(module: FrozenModule, name: str) -> Iterator[tuple[str, FrozenModule]]:
    if isinstance(module, FrozenSequential):
        for n, stage in enumerate(module):
            yield from leaves(stage, f"{name}.{n}")
    elif isinstance(module, FrozenResidual):
        yield from leaves(module.shortcut, f"{name}.shortcut")
        yield from leaves(module.block, f"{name}.block")
    else:
        yield name, module
