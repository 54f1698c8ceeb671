"""Record the gradient computation of a training step as a CUDA graph, and replay it.

A deep network of small layers launches thousands of short kernels per step. In a CUDA graph they have almost no launch
overhead.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Gradients = Callable[[Tensor, Tensor, float | Tensor], Tensor]
"""(images, labels, progress) -> loss; leaves the gradients in the parameters' `grad`."""

_WARM_UP = 3  # libraries choose kernels and allocate workspaces in their first calls, which must not be recorded


class RecordedGradients:
    """Callable that replays `gradients` from a CUDA graph.

    All batches must have the same shape. Call `reset()` when another tensor that `gradients` reads was replaced.
    """

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

    def reset(self) -> None:
        """Drop the graph. The next call records it again."""
        self._graph = None

    def _record(self, images: Tensor, labels: Tensor) -> None:
        self._images, self._labels = images.clone(), labels.clone()
        self._progress = torch.zeros((), device=images.device)
        buffers = [buffer.clone() for buffer in self._model.buffers()]
        side_stream = torch.cuda.Stream(images.device)
        side_stream.wait_stream(torch.cuda.current_stream(images.device))
        with torch.cuda.stream(side_stream):
            for _ in range(_WARM_UP):
                self._clear()
                self._gradients(self._images, self._labels, self._progress)
        torch.cuda.current_stream(images.device).wait_stream(side_stream)
        for buffer, value in zip(self._model.buffers(), buffers, strict=True):  # undo the warm-up's updates of buffers
            buffer.copy_(value)
        # Parameters have no `grad` when the recording starts, so each replay overwrites the gradients and adds nothing.
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
    """Silence autograd's warning about streams. Warm-up and recording use other streams, and wait for them.

    PyTorch has no function that returns this setting. Afterwards it has PyTorch's default.
    """
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    try:
        yield
    finally:
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)
