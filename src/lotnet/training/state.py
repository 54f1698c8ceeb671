"""The progress of a run, and how it is saved and resumed."""

import time
from dataclasses import dataclass, field
from functools import partial

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import Tensor

from lotnet.runs.checkpoint import Best, Position, add_prefix, snapshot, strip_prefix
from lotnet.runs.directory import Run
from lotnet.training.background import Background
from lotnet.training.evaluate import reduce_over_processes
from lotnet.training.rng import random_states, set_random_states
from lotnet.training.step import TrainingStep


@dataclass
class TrainingState:
    """Progress of a run: `step` steps of epoch `epoch` are done."""

    loss: Tensor
    """Sum of the losses of this epoch's steps."""
    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    """Time spent on this epoch by earlier sessions."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl."""
    best: Best | None = None
    started: float = field(default_factory=time.perf_counter)
    """Time at which this session began or resumed this epoch."""

    def elapsed(self) -> float:
        """Seconds spent on this epoch, by all sessions."""
        return self.seconds + time.perf_counter() - self.started

    def finish_epoch(self, score: float | None) -> bool:
        """Go to the next epoch. Returns whether the finished one is the best so far; ties go to the later epoch.

        Without a score, the last epoch is the best.
        """
        known = None if self.best is None else self.best.score
        better = score is None or known is None or score >= known
        if better:
            self.best = Best(self.epoch + 1, score)
        self.loss = torch.zeros_like(self.loss)
        self.epoch, self.step = self.epoch + 1, 0
        self.seconds, self.started = 0.0, time.perf_counter()
        return better

    def position(self, steps: int, fingerprint: str) -> Position:
        """Describe this state in a checkpoint of a run with `steps` steps an epoch."""
        taken = self.epoch * steps + self.step
        return Position(self.epoch, self.step, taken, self.metrics_bytes, self.best, fingerprint)


class StateSaver:
    """Writes a run's checkpoints in a background thread, from copies that are made at once."""

    def __init__(self, run: Run, step: TrainingStep, steps: int, fabric: Fabric, background: Background) -> None:
        self._run, self._step, self._steps = run, step, steps
        self._fabric, self._background = fabric, background
        self._fingerprint = run.config.fingerprint()

    def save(self, state: TrainingState) -> None:
        """Save everything that the rest of the run depends on.

        All processes call this; the first one writes. `state.loss` becomes its mean over the processes.
        """
        state.loss = reduce_over_processes(self._fabric, state.loss, "mean")
        if self._fabric.is_global_zero:
            seconds = torch.tensor(state.elapsed(), dtype=torch.float64)
            tensors = {
                **self._step.tensors(),
                **add_prefix("rng", random_states(self._fabric.device)),
                **add_prefix("progress", {"loss": state.loss, "seconds": seconds}),
            }
            position = state.position(self._steps, self._fingerprint)
            self._background(partial(self._run.checkpoints.save, position, snapshot(tensors)))
        self._fabric.barrier()

    def save_best(self, state: TrainingState) -> None:
        """Save the evaluated weights as the best checkpoint. Only the first process calls this."""
        weights = snapshot(add_prefix("weights", self._step.evaluated.state_dict()))
        position = state.position(self._steps, self._fingerprint)
        self._background(partial(self._run.checkpoints.save_best, position, weights))


def resume(run: Run, step: TrainingStep, fabric: Fabric, console: Console) -> TrainingState:
    """Restore the last intact checkpoint, or start at epoch 0 if there is none."""
    warnings: list[str] = []
    if fabric.is_global_zero:
        run.checkpoints.remove_partial_files()
    found = run.checkpoints.latest(run.config.fingerprint(), warnings.append)
    if fabric.is_global_zero:
        for text in warnings:
            console.print(f"warning: {text}", soft_wrap=True, highlight=False)
    fabric.barrier()
    state = TrainingState(torch.zeros((), dtype=torch.float64, device=fabric.device))
    if found is not None:
        position, tensors = found
        step.load_tensors(tensors)
        set_random_states(strip_prefix(tensors, "rng"), fabric.device)
        progress = strip_prefix(tensors, "progress")
        state.loss, state.seconds = progress["loss"].to(fabric.device), float(progress["seconds"])
        state.epoch, state.step, state.best = position.epoch, position.step, position.best
        state.metrics_bytes = position.metrics_bytes
    if fabric.is_global_zero:
        run.metrics_file.truncate(state.metrics_bytes)
    return state
