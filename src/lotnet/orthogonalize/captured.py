"""The gradients of a training step, recorded as a CUDA graph and replayed.

A deep network of small layers launches thousands of short kernels per step. In a CUDA graph they have almost no launch
overhead.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.kernels import dispatch
from lotnet.orthogonalize.block import MEASURE_EVERY, measure_again

Action = Callable[[], object]
_Inputs = tuple[Tensor | float, ...]

_WARM_UP = 3  # libraries choose kernels and allocate workspaces in their first calls, which must not be recorded


class CapturedGradients:
    """The gradients of a training step, recorded as a CUDA graph and replayed. On a CPU, `gradients` is called.

    Args:
        gradients: a function that takes tensors and numbers, leaves gradients in the parameters' `grad`, and returns a
            tensor, such as the loss.
        model: the model whose parameters these are.
        measure_every: calls between measurements of the kernels; None never measures.

    Contract:

    * a call leaves the gradients of its own batch in `grad`, and adds nothing to what was there. Micro-batches belong
      into `gradients`. Clipping and the optimizer's step come after the call;
    * the result is that of calling `gradients`, after `model.zero_grad()`;
    * `gradients` may use `lotnet.orthogonalized` and autocast, and must not read values of the GPU (`.item()`, `print`,
      `if` of a tensor): Python runs only while a step is recorded. A step that cannot be recorded raises an
      `InputError`;
    * each shape of the inputs has a graph and memory of its own, which is recorded at its first call. That call runs
      `gradients` a few times; buffers of the model are restored after it;
    * the parameters stay where they are: an optimizer and `load_state_dict` change them in place. After
      `model.to(...)`, `requires_grad_(...)` or another change to what `gradients` does, call `reset()`;
    * every 500th call measures how many steps the polar factors need, and records anew if they need more;
    * it does not average gradients over processes. `DistributedDataParallel` communicates inside its backward pass, so
      it is refused: capture the module inside it, and average the gradients after the call.

    >>> from lotnet import CapturedGradients, OrthogonalConv2d, orthogonalized
    >>> model = nn.Sequential(OrthogonalConv2d(3, 8, 3), nn.Flatten())
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def gradients(images):
    ...     with orthogonalized(model):
    ...         loss = model(images).square().mean()
    ...         loss.backward()
    ...     return loss.detach()
    >>> step = CapturedGradients(gradients, model)
    >>> for images in torch.rand(4, 16, 3, 8, 8):
    ...     loss = step(images)
    ...     optimizer.step()
    """

    def __init__(
        self,
        gradients: Callable[..., Tensor | Generator[Action, None, Tensor]],
        model: nn.Module,
        *,
        measure_every: int | None = MEASURE_EVERY,
    ) -> None:
        """A generator may take the place of `gradients`. It yields functions to call between recorded parts, such as
        collectives, which cannot be recorded. They must work in place. None for `measure_every` never measures.
        """
        if any(isinstance(module, nn.parallel.DistributedDataParallel) for module in model.modules()):
            raise InputError(
                "DistributedDataParallel communicates inside its backward pass, which cannot be recorded: give the "
                "module inside it, and average the gradients after each call"
            )
        self._gradients, self._model, self._measure_every = gradients, model, measure_every
        self._recordings: dict[object, _Recording] = {}
        self._calls = 0

    def __call__(self, *inputs: Tensor | float) -> Tensor:
        first = next(self._model.parameters())
        if not dispatch.can_be_recorded(first):
            _clear(self._model)
            return run(self._gradients, inputs)
        self._calls += 1
        if self._measure_every and self._calls % self._measure_every == 0 and measure_again(self._model):
            self.reset()
        key = tuple((x.shape, x.dtype) if isinstance(x, Tensor) else None for x in inputs)
        if key not in self._recordings:
            with _without_stream_warnings():
                self._recordings[key] = _Recording(self._gradients, self._model, inputs, first.device)
        return self._recordings[key].replay(inputs)

    def reset(self) -> None:
        """Drop the graphs. The next call records again."""
        self._recordings.clear()


class _Recording:
    """Graphs, and what runs between them, for inputs of one shape."""

    def __init__(self, gradients: Callable[..., Any], model: nn.Module, inputs: _Inputs, device: torch.device) -> None:
        self._inputs = [x.clone() if isinstance(x, Tensor) else torch.tensor(float(x), device=device) for x in inputs]
        self._parameters = list(model.parameters())
        buffers = [buffer.clone() for buffer in model.buffers()]
        side_stream = torch.cuda.Stream(device)
        side_stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side_stream):
            for _ in range(_WARM_UP):
                _clear(model)
                run(gradients, self._inputs)
        torch.cuda.current_stream(device).wait_stream(side_stream)
        # Parameters have no `grad` when the recording starts, so each replay overwrites the gradients and adds nothing.
        _clear(model)
        self._parts: list[tuple[torch.cuda.CUDAGraph, Action | None]] = []
        self._record(gradients)
        for buffer, value in zip(model.buffers(), buffers, strict=True):  # undo the warm-up's updates of buffers
            buffer.copy_(value)
        self._grads = [parameter.grad for parameter in self._parameters]

    def _record(self, gradients: Callable[..., Any]) -> None:
        # NCCL's own threads make calls that would end a recording in the default mode.
        mode = "thread_local" if dist.is_available() and dist.is_initialized() else "global"
        running, pool, done = _steps(gradients, self._inputs), torch.cuda.graph_pool_handle(), False
        while not done:
            graph, action = torch.cuda.CUDAGraph(), None
            try:
                with torch.cuda.graph(graph, pool=pool, capture_error_mode=mode):
                    try:
                        action = next(running)
                    except StopIteration as stop:
                        self._result, done = stop.value, True
            except RuntimeError as error:
                cause = str(error).partition("\n")[0]
                raise InputError(
                    f"this step cannot be recorded as a CUDA graph ({cause}): leave out what reads a value of the GPU, "
                    "such as .item(), or call the function itself"
                ) from error
            self._parts.append((graph, action))

    def replay(self, inputs: _Inputs) -> Tensor:
        for static, x in zip(self._inputs, inputs, strict=True):
            if isinstance(x, Tensor):
                static.copy_(x)
            else:
                static.fill_(x)
        for graph, action in self._parts:
            graph.replay()
            if action is not None:
                action()
        for parameter, grad in zip(self._parameters, self._grads, strict=True):
            parameter.grad = grad  # the optimizer may have set it to None
        return self._result.clone()


def _steps(gradients: Callable[..., Any], inputs: Any) -> Generator[Action, None, Tensor]:
    result = gradients(*inputs)
    return (yield from result) if isinstance(result, Generator) else result


def run(gradients: Callable[..., Any], inputs: Sequence[Any]) -> Tensor:
    """Call `gradients`, and what it yields, without recording anything."""
    running = _steps(gradients, inputs)
    while True:
        try:
            next(running)()
        except StopIteration as stop:
            result: Tensor = stop.value
            return result


def _clear(model: nn.Module) -> None:
    for parameter in model.parameters():
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
