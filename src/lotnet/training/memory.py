"""Refuse images for which one training step surely needs more memory than there is."""

import os

import torch
from lightning_fabric import Fabric

from lotnet.config import RunConfig
from lotnet.errors import InputError
from lotnet.models import ImageSpec, least_training_bytes

GIB = 2**30


def check_memory(config: RunConfig, shape: tuple[int, int, int], fabric: Fabric) -> None:
    """Refuse a run on images of `shape` (c, h, w) if a lower bound of its memory exceeds the memory of its device.

    A run that is not refused may still need too much.
    """
    there = memory_of(fabric.device)
    batch = config.trainer.batch_size // fabric.world_size
    itemsize = 8 if config.trainer.precision == "double" else 4
    # More classes need more memory, and their number is not known yet.
    needed = least_training_bytes(config.model, ImageSpec(*shape, classes=2), batch, itemsize)
    if there is not None and needed > there:
        place = "the memory of this machine is" if fabric.device.type == "cpu" else f"{fabric.device} has"
        raise InputError(
            f"one training step on images of {shape[1]} x {shape[2]} pixels needs more than {needed / GIB:,.0f} GiB of "
            f"memory, and {place} {there / GIB:,.0f} GiB: lower data.side, model.channels or trainer.batch_size"
        )


def memory_of(device: torch.device) -> int | None:
    """The memory of a GPU, or of this machine, in bytes; None if the operating system does not say it."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
