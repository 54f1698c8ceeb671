"""Branches whose outputs are concatenated."""

import math

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, Shape
from lotnet.frozen.branches import FrozenConcatenation
from lotnet.layers.base import LipschitzLayer, check_floating, frozen_block


class Concatenation(LipschitzLayer):
    """The outputs of n branches, concatenated along the channels and divided by sqrt(n): 1-Lipschitz if they are.

    With `scaled=False` its Lipschitz constant is sqrt(n). A certificate accounts for that. But the standard certificate
    and the losses, which take every layer to be 1-Lipschitz, then overstate radii.

    >>> Concatenation(nn.Identity(), nn.Identity())(torch.ones(1, 2)).norm(dim=1).allclose(torch.ones(1, 2).norm(dim=1))
    True
    """

    def __init__(self, *branches: nn.Module, scaled: bool = True) -> None:
        super().__init__()
        if not branches:
            raise InputError("a Concatenation needs branches: pass at least one module")
        self.branches = nn.ModuleList(branches)
        self.scale = 1 / math.sqrt(len(branches)) if scaled else 1.0

    def forward(self, x: Tensor) -> Tensor:
        check_floating(x)
        outputs = [branch(x) for branch in self.branches]
        _check_sizes_agree([tuple(y.shape[1:]) for y in outputs])
        return torch.cat(outputs, dim=1) * self.scale

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        branches = [frozen_block(b, shape, dtype, f"branch {n}") for n, b in enumerate(self.branches)]
        _check_sizes_agree([branch.output_shape(shape) for branch in branches])
        return FrozenConcatenation(dtype, {}, {"scale": torch.tensor(self.scale, dtype=torch.float64)}, *branches)

    def extra_repr(self) -> str:
        return "" if self.scale < 1 or len(self.branches) == 1 else "scaled=False"


def _check_sizes_agree(shapes: list[Shape]) -> None:
    if len({shape[1:] for shape in shapes}) > 1:
        raise InputError(
            f"branches of shapes {', '.join(map(str, shapes))} cannot be concatenated along the channels: give them "
            "equal strides"
        )
