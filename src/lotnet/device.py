"""The device that `--device` names."""

import re

import torch

from lotnet.errors import InputError


def choose_device(name: str) -> torch.device:
    """The device of that name: cpu, cuda, cuda:N, or auto, which is a GPU if there is one."""
    found = re.fullmatch(r"(auto|cpu|cuda)|cuda:([0-9]+)", name)
    if not found:
        raise InputError(f"there is no device {name}: use auto, cpu, cuda or cuda:N")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name != "cpu" and not torch.cuda.is_available():
        raise InputError("there is no GPU that PyTorch can use here: use --device cpu")
    if found[2] and int(found[2]) >= torch.cuda.device_count():
        raise InputError(f"there is no {name}: the last GPU is cuda:{torch.cuda.device_count() - 1}")
    return torch.device(name)
