"""Frozen models, for deployment and certification: stored tensors, plain inference, proved bounds."""

from lotnet.frozen.base import FrozenModule, FrozenSequential
from lotnet.frozen.branches import FrozenResidual
from lotnet.frozen.model import FROZEN, FrozenModel

__all__ = ["FROZEN", "FrozenModel", "FrozenModule", "FrozenResidual", "FrozenSequential"]
