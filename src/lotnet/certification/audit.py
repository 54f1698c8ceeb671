"""Audit of a frozen model: the proved bound of each layer, and how long each proof took."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from lotnet.frozen.model import FrozenModel, require_frozen


@dataclass(frozen=True)
class AuditRow:
    """The audit of one frozen layer."""

    name: str
    kind: str
    lipschitz_bound: float
    """Proved for the stored tensors."""
    orthogonality_error: float | None
    """Largest `||W W* - I||_F / sqrt m` of the layer's m-row matrices; None if the layer does not report it."""
    seconds: float


def audit(model: FrozenModel) -> Iterator[AuditRow]:
    """Prove the bound of each layer in turn. The layers cache their bounds, so the model's bound is then free."""
    require_frozen(model, "certified")
    for name, module in model.named_layers("model"):
        start = time.perf_counter()
        bound = float(module.lipschitz_bound())
        error = module.orthogonality_error()
        yield AuditRow(name, type(module).__name__.removeprefix("Frozen"), bound, error, time.perf_counter() - start)
