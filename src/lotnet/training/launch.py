"""Choose devices, processes and threads, and synchronise the processes."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import distributed

from lotnet.config import TrainerConfig
from lotnet.device import choose_device
from lotnet.errors import InputError
from lotnet.files import exclusive_lock
from lotnet.training.signals import Interrupted

T = TypeVar("T")


def make_fabric(trainer: TrainerConfig, device: str) -> Fabric:
    """Make a Fabric for `launch`. torchrun sets the number of processes if it is used; otherwise `trainer` does."""
    chosen = choose_device(device)
    accelerator, index = chosen.type, chosen.index
    processes, nodes = trainer.devices, trainer.nodes
    if distributed.is_torchelastic_launched():
        processes = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // processes
    if trainer.batch_size % (processes * nodes):
        raise InputError(
            f"trainer.batch_size {trainer.batch_size} cannot be shared by {processes * nodes} processes: make it a "
            "multiple"
        )
    if accelerator == "cuda" and processes > torch.cuda.device_count():
        raise InputError(
            f"{processes} processes need as many GPUs, and there are {torch.cuda.device_count()}: lower trainer.devices"
        )
    if index is not None and processes * nodes > 1:
        raise InputError(f"--device {device} is one device: use --device cuda for {processes * nodes} processes")
    # Buffers need no broadcast: they are equal, because Centering computes its means over all processes.
    strategy = DDPStrategy(broadcast_buffers=False) if processes * nodes > 1 else "auto"
    with _without_advice():
        return Fabric(
            accelerator=accelerator,
            devices=processes if index is None else [index],
            num_nodes=nodes,
            strategy=strategy,
            precision="64-true" if trainer.precision == "double" else "32-true",
        )


def launch(fabric: Fabric) -> None:
    """Start the other processes, if there are any."""
    with _without_advice():
        fabric.launch()


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Set the number of PyTorch's CPU threads, and restore it on exit. None leaves the number as it is."""
    before = torch.get_num_threads()
    try:
        if count is not None:
            torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def barrier_on_exit(fabric: Fabric) -> Iterator[None]:
    """Wait for all processes on exit, also after a request to stop, but not after an error.

    Other processes read next what the first process has written. And when one process ends, torchrun kills the others,
    even while they are writing.
    """
    try:
        yield
    except Interrupted:
        fabric.barrier()
        raise
    fabric.barrier()


@contextmanager
def lock_on_rank_zero(fabric: Fabric, path: Path) -> Iterator[None]:
    """Hold the exclusive lock of a folder in the first process, for all processes."""
    with ExitStack() as held:
        on_rank_zero(fabric, lambda: held.enter_context(exclusive_lock(path)))
        yield


def destroy_process_group() -> None:
    """Close the connections between the processes. A process that ends with open connections may abort."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def on_rank_zero(fabric: Fabric, action: Callable[[], T]) -> T:
    """Run `action` in the first process, and return its result in all processes.

    If it raises an `InputError`, the first process raises it, and the others exit.
    """
    found: T | None = None
    problem = ""
    if fabric.is_global_zero:
        try:
            found = action()
        except InputError as error:
            problem = str(error)
    found, problem = fabric.broadcast((found, problem))
    if problem and fabric.is_global_zero:
        raise InputError(problem)
    if problem:
        raise SystemExit(2)
    return cast(T, found)


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silence Fabric's advice on TF32, which the training step sets itself, and on workers, which do not exist here."""
    logger = logging.getLogger("lightning_fabric")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
