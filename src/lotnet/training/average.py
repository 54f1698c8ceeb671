"""Averages: of the weights over the steps, and of the gradients over processes."""

import copy
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage:
    """Exponential moving average of the weights of a model, which starts at its current weights. Buffers are copied.

    PyTorch's `AveragedModel` computes the same. It counts its updates on the CPU and copies that number to the GPU in
    each, which waits for the GPU.
    """

    def __init__(self, model: nn.Sequential, decay: float) -> None:
        self.model = copy.deepcopy(model)
        self._update = get_ema_multi_avg_fn(decay)

    @torch.no_grad()
    def update(self, model: nn.Sequential) -> None:
        self._update(list(self.model.parameters()), list(model.parameters()), 0)  # the number is not used
        for mine, theirs in zip(self.model.buffers(), model.buffers(), strict=True):
            mine.copy_(theirs)


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
