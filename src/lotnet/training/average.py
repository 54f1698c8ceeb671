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
        found = [(parameter, parameter.grad) for parameter in self._parameters if parameter.grad is not None]
        sizes = [grad.numel() for _, grad in found]
        if self._flat is None or len(self._flat) != sum(sizes):
            self._flat = torch.empty(sum(sizes), dtype=found[0][1].dtype, device=found[0][1].device)
        torch.cat([grad.reshape(-1) for _, grad in found], out=self._flat)
        for (parameter, _), view in zip(found, self._flat.split(sizes), strict=True):
            parameter.grad = view.view_as(parameter)

    def sum_up(self) -> None:
        assert self._flat is not None
        dist.all_reduce(self._flat)

    def divide(self) -> None:
        assert self._flat is not None
        self._flat.div_(dist.get_world_size())
