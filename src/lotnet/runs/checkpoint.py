"""Checkpoints: everything a run needs to go on, in one safetensors file, no pickle.

Invariants:

* a file holds tensors `weights.*`, `average.*` (if there is one), `optimizer.<parameter>.<key>`, `rng.*`, `progress.*`,
  `schedules.*` (from one GPU), and one metadata entry, JSON: format, position, best so far, length of metrics.jsonl,
  fingerprint of the settings, and the SHA-256 of all of that;
* it is written whole and renamed, so that a reader sees the old one, the new one or none;
* whatever is not exactly what was written is refused with a sentence;
* no file ever holds NaN or infinite weights.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.files import atomic_write

FORMAT = 1
_ENTRY = "lotnet.checkpoint"
_KEPT = 2


@dataclass(frozen=True)
class Best:
    """What the best checkpoint so far scored, and when."""

    epoch: int
    score: float


@dataclass(frozen=True)
class Position:
    """Where in a run a checkpoint was taken: before step `step` of epoch `epoch`, both counted from zero."""

    epoch: int
    step: int
    total_steps: int
    """Steps taken since the start."""
    metrics_bytes: int
    """Length of metrics.jsonl then."""
    best: Best | None
    fingerprint: str
    """Of the settings."""


class Checkpoints:
    """The folder `checkpoints` of a run: the last two, STEP.safetensors, and best.safetensors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.best = folder / "best.safetensors"

    def save(self, position: Position, tensors: dict[str, Tensor]) -> Path:
        path = self.folder / f"{position.total_steps:08d}.safetensors"
        write(path, position, tensors)
        for old in self.steps()[:-_KEPT]:
            old.unlink(missing_ok=True)
        return path

    def save_best(self, position: Position, weights: dict[str, Tensor]) -> None:
        write(self.best, position, weights)

    def steps(self) -> list[Path]:
        """Oldest first."""
        return sorted(path for path in self.folder.glob("*.safetensors") if path.stem.isdecimal())

    def latest(self, fingerprint: str, warn: Callable[[str], None]) -> tuple[Position, dict[str, Tensor]] | None:
        """The newest that is whole; None if the run was stopped before its first."""
        paths = self.steps()
        for path in reversed(paths):
            try:
                return read(path, fingerprint)
            except DamagedError as error:
                warn(str(error))
        if paths:
            raise InputError(
                f"no checkpoint in {self.folder} can be read: start the run again with `lotnet train --overwrite`"
            )
        return None

    def sweep(self) -> None:
        """Remove what a killed process left half written."""
        for path in self.folder.glob(".*.safetensors.*"):
            path.unlink(missing_ok=True)


class DamagedError(InputError):
    """A file that is not what was written."""


def snapshot(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies in the CPU's memory, contiguous as safetensors wants them: training may go on while they are written."""
    for name, tensor in tensors.items():
        if name.startswith(("weights.", "average.")) and not torch.isfinite(tensor).all():
            raise InputError(
                f"{name} has become NaN or infinite and is not saved, the last good checkpoint is kept: "
                "lower optimizer.lr or set optimizer.clip, and train again"
            )
    return {name: _copy(tensor.detach()) for name, tensor in tensors.items()}


def _copy(tensor: Tensor) -> Tensor:
    # A GPU fills page-locked memory many times as fast, and PyTorch uses it again for the next.
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda).copy_(tensor)


def write(path: Path, position: Position, tensors: dict[str, Tensor]) -> None:
    """`tensors` as `snapshot` makes them."""
    about: dict[str, Any] = {"format": FORMAT, **asdict(position)}
    about["sha256"] = _digest(about, tensors)
    atomic_write(path, save(tensors, metadata={_ENTRY: json.dumps(about)}))


def read(path: Path, fingerprint: str | None = None) -> tuple[Position, dict[str, Tensor]]:
    """Position and tensors; `DamagedError` if the file is, `InputError` if it belongs to other settings or versions."""
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})[_ENTRY])
            # A copy of each: what safetensors maps is not aligned, and alignment can change the last bit of a sum.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if about.get("format") != FORMAT:
            raise InputError(f"{path} has format {about.get('format')}, this lotnet reads {FORMAT}: train again")
        if about.pop("sha256") != _digest(about, tensors):
            raise ValueError("checksum")
        del about["format"]
        best = about.pop("best")
        position = Position(**about, best=None if best is None else Best(**best))
    except InputError:
        raise
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        raise DamagedError(f"{path} is damaged and is not used: delete it, or resume from an older one") from None
    if fingerprint is not None and position.fingerprint != fingerprint:
        raise InputError(
            f"{path} was written with other settings than config.yaml beside it has: put config.yaml back as it was, "
            "or start a new run"
        )
    return position, tensors


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """State by parameter name. All of it is tensors: the learning rate follows from the position."""
    return {
        f"optimizer.{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for full_name, tensor in tensors.items():
        if full_name.startswith("optimizer."):
            name, key = full_name.removeprefix("optimizer.").rsplit(".", 1)
            parameter = parameters[name]
            # Counts live on the CPU, where optimisers keep them.
            place = "cpu" if key in ("step", "mu_product") else parameter.device
            optimizer.state[parameter][key] = tensor.to(place)


def named(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with `prefix.` before their names."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The opposite of `named`: the tensors whose names start with `prefix.`, without it."""
    return {
        name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")
    }


def _digest(about: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    shapes = {name: [str(tensor.dtype), *tensor.shape] for name, tensor in sorted(tensors.items())}
    digest = hashlib.sha256(json.dumps([about, shapes], sort_keys=True).encode())
    for _, tensor in sorted(tensors.items()):
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
