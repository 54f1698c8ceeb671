"""The average of gradients over processes, as one message."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn


class FlatGradients:
    """All gradients in one tensor, which one all-reduce averages over the processes.

    `collect` and `divide` can be recorded as CUDA graphs, `sum_up` communicates. Afterwards each `grad` is a view of
    the tensor. Parameters without a gradient keep none: it must be the same ones on all processes.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._flat: Tensor | None = None

    def collect(self) -> None:
        found = [parameter for parameter in self._parameters if parameter.grad is not None]
        self._flat = torch.cat([p.grad.reshape(-1) for p in found if p.grad is not None])
        for parameter, view in zip(found, self._flat.split([p.numel() for p in found]), strict=True):
            parameter.grad = view.view_as(parameter)

    def sum_up(self) -> None:
        assert self._flat is not None
        dist.all_reduce(self._flat)

    def divide(self) -> None:
        assert self._flat is not None
        self._flat.div_(dist.get_world_size())
