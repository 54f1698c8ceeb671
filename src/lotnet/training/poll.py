"""Checks between steps: was a stop requested, and is the loss still finite?"""

import torch
from lightning_fabric import Fabric

from lotnet.errors import InputError
from lotnet.training.evaluate import reduce_over_processes
from lotnet.training.signals import StopRequest
from lotnet.training.state import TrainingState

_GPU_STEPS = 50  # reading the loss waits for all queued work of the GPU


def steps_between_polls(fabric: Fabric) -> int:
    """Return 1 on a CPU, and more on a GPU, where reading the loss is expensive."""
    return 1 if fabric.device.type == "cpu" else _GPU_STEPS


def poll_stop_and_loss(stop: StopRequest, state: TrainingState, lr: float, fabric: Fabric) -> int:
    """Return the signal that any process has received, or 0. Raises an `InputError` if any loss is not finite."""
    finite = bool(torch.isfinite(state.loss))
    signal = stop.signal
    if fabric.world_size > 1:
        noticed = torch.tensor([signal, not finite], device=fabric.device)
        signal, broken = reduce_over_processes(fabric, noticed, "max").tolist()
        finite = not broken
    if not finite:
        raise InputError(
            f"the loss is no longer finite in step {state.step} of epoch {state.epoch + 1}, and the last good "
            f"checkpoint is kept: lower optimizer.lr (it is {lr:g}) or set optimizer.clip"
        )
    return signal
