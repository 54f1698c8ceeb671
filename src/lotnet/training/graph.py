"""A training step's gradients, recorded once as a CUDA graph and replayed.

A deep network of small layers launches thousands of short kernels a step; recorded, they cost what they compute.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Gradients = Callable[[Tensor, Tensor, float | Tensor], Tensor]
"""(images, labels, progress) -> loss; leaves the gradients in the parameters' `grad`."""

_WARM_UP = 3  # libraries choose their kernels and allocate their workspaces in the first calls, outside the record


class RecordedGradients:
    """Calls `gradients` by replay. All batches have one shape; `forget()` when anything else it reads was replaced."""

    def __init__(self, gradients: Gradients, model: nn.Module) -> None:
        self._gradients = gradients
        self._model = model
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, images: Tensor, labels: Tensor, progress: float) -> Tensor:
        if self._graph is None:
            with _without_stream_warnings():
                self._record(images, labels)
        assert self._graph is not None
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._progress.fill_(progress)
        self._graph.replay()
        return self._loss.clone()

    def forget(self) -> None:
        self._graph = None

    def _record(self, images: Tensor, labels: Tensor) -> None:
        self._images, self._labels = images.clone(), labels.clone()
        self._progress = torch.zeros((), device=images.device)
        buffers = [buffer.clone() for buffer in self._model.buffers()]
        aside = torch.cuda.Stream(images.device)
        aside.wait_stream(torch.cuda.current_stream(images.device))
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                self._clear()
                self._gradients(self._images, self._labels, self._progress)
        torch.cuda.current_stream(images.device).wait_stream(aside)
        for buffer, value in zip(self._model.buffers(), buffers, strict=True):  # running means have not seen this yet
            buffer.copy_(value)
        # Recorded without a gradient to add to, each replay writes the gradients anew, to the same place.
        self._clear()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._loss = self._gradients(self._images, self._labels, self._progress)
        self._graph = graph

    def _clear(self) -> None:
        for parameter in self._model.parameters():
            parameter.grad = None


@contextmanager
def _without_stream_warnings() -> Iterator[None]:
    """Warming up and recording use streams of their own, and each is waited for: autograd need not warn of that.

    PyTorch cannot be asked for this setting: afterwards it has PyTorch's default.
    """
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    try:
        yield
    finally:
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)
