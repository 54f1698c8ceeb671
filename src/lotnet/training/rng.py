"""State of PyTorch's random number generators on the CPU and on the run's device."""

import torch
from torch import Tensor


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Return the state of each generator by the name of its device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Restore what `random_states` returned, perhaps on another device."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:  # a run may move from a CPU to a GPU
        torch.cuda.set_rng_state(states["cuda"], device)
