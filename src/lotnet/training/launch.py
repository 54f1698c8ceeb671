"""Devices and processes, by Lightning Fabric."""

import logging
import os
import re
import warnings
from collections.abc import Callable
from typing import TypeVar, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy
from torch import distributed

from lotnet.config import TrainerConfig
from lotnet.errors import InputError

T = TypeVar("T")


def make_fabric(trainer: TrainerConfig, device: str) -> Fabric:
    """Not launched yet. Under torchrun the number of processes is torchrun's, otherwise the configuration's."""
    accelerator, index = _parse(device)
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
    # Every process keeps its own buffers, which are equal, since Centering takes its means over all of them.
    strategy = DDPStrategy(broadcast_buffers=False) if processes * nodes > 1 else "auto"
    logging.getLogger("lightning_fabric").setLevel(
        logging.WARNING
    )  # its advice to set TF32, which the loop does itself
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on precision and workers that does not apply here
        return Fabric(
            accelerator=accelerator,
            devices=processes if index is None else [index],
            num_nodes=nodes,
            strategy=strategy,
            precision="64-true" if trainer.precision == "double" else "32-true",
        )


def destroy_process_group() -> None:
    """Once all processes are done: one that ends with its connections open may abort instead."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def on_rank_zero(fabric: Fabric, action: Callable[[], T]) -> T:
    """What the first process's `action` returns, for all. If it fails, it says so and the others end quietly."""
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


def _parse(device: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"(auto|cpu|cuda)(?::(\d+))?", device)
    if not found or (found[2] and found[1] != "cuda"):
        raise InputError(f"there is no device {device}: use auto, cpu, cuda or cuda:N")
    kind = found[1]
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("there is no GPU that PyTorch can use here: use --device cpu")
    index = int(found[2]) if found[2] else None
    if index is not None and index >= torch.cuda.device_count():
        raise InputError(f"there is no {device}: the last GPU is cuda:{torch.cuda.device_count() - 1}")
    return kind, index
