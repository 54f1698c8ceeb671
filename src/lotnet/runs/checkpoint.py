"""Checkpoints: everything that a run needs to continue, in one safetensors file without pickle.

Invariants:

* a file holds tensors `weights.*`, `average.*` (if there is one), `optimizer.<parameter>.<key>`, `rng.*`, `progress.*`,
  `schedules.*` (from one GPU), and one metadata entry, JSON: format, position, best so far, length of metrics.jsonl,
  fingerprint of the settings, and the SHA-256 of all of that;
* writing is atomic: a reader sees the old file, the new file or none;
* a file that differs in any bit from what was written is refused with an `InputError`;
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
from lotnet.files import atomic_write, is_partial_file, make_folder, remove_partial_files, unreadable
from lotnet.records import convert, parse_json

FORMAT = 1
_ENTRY = "lotnet.checkpoint"
_KEPT = 2


@dataclass(frozen=True)
class Best:
    """Epoch and score of the best checkpoint so far. Without validation images it is the last, and has no score."""

    epoch: int
    score: float | None


@dataclass(frozen=True)
class Position:
    """Where in a run a checkpoint was taken: before step `step` of epoch `epoch`, both counted from zero."""

    epoch: int
    step: int
    total_steps: int
    """Steps taken since the start."""
    metrics_bytes: int
    """Length of metrics.jsonl at that time."""
    best: Best | None
    fingerprint: str
    """Fingerprint of the settings."""


class Checkpoints:
    """The folder `checkpoints` of a run: the last two checkpoints, STEP.safetensors, and best.safetensors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.best = folder / "best.safetensors"

    def save(self, position: Position, tensors: dict[str, Tensor]) -> Path:
        make_folder(self.folder)  # a run that was killed while it was made has none
        path = self.folder / f"{position.total_steps:08d}.safetensors"
        write(path, position, tensors)
        for old in self.steps()[:-_KEPT]:
            old.unlink(missing_ok=True)
        return path

    def save_best(self, position: Position, weights: dict[str, Tensor]) -> None:
        make_folder(self.folder)
        write(self.best, position, weights)

    def steps(self) -> list[Path]:
        """Paths of the checkpoints STEP.safetensors, oldest first."""
        return sorted(path for path in self.folder.glob("*.safetensors") if path.stem.isdecimal())

    def latest(self, fingerprint: str, warn: Callable[[str], None]) -> tuple[Position, dict[str, Tensor]] | None:
        """Read the newest intact checkpoint. Returns None if there is no checkpoint yet.

        A checkpoint that cannot be read is an error, because it may be intact.
        """
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

    def remove_partial_files(self) -> None:
        """Remove files that a killed process left half written."""
        for folder in (self.folder, self.folder.parent):
            remove_partial_files(folder)
        for path in self.folder.glob(".*.safetensors.*"):  # as earlier versions named them
            if not is_partial_file(path):
                path.unlink(missing_ok=True)


class DamagedError(InputError):
    """A file whose content is not what was written."""


def snapshot(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to CPU memory, so that training can continue while the copies are written."""
    for name, tensor in tensors.items():
        if name.startswith(("weights.", "average.")) and not torch.isfinite(tensor).all():
            raise InputError(
                f"{name} has become NaN or infinite and is not saved, the last good checkpoint is kept: "
                "lower optimizer.lr or set optimizer.clip, and train again"
            )
    return {name: _copy(tensor.detach()) for name, tensor in tensors.items()}


def _copy(tensor: Tensor) -> Tensor:
    # A GPU copies to page-locked memory much faster, and PyTorch reuses that memory for the next checkpoint.
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda).copy_(tensor)


def write(path: Path, position: Position, tensors: dict[str, Tensor]) -> None:
    """Write a checkpoint. `tensors` come from `snapshot`."""
    about: dict[str, Any] = {"format": FORMAT, **asdict(position)}
    about["sha256"] = _digest(about, tensors)
    atomic_write(path, save(tensors, metadata={_ENTRY: json.dumps(about)}))


def read(path: Path, fingerprint: str | None = None) -> tuple[Position, dict[str, Tensor]]:
    """Read position and tensors.

    Raises `DamagedError` if the file is damaged, and `InputError` if it cannot be read, or belongs to other settings or
    to another format version.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = convert(dict[str, Any], parse_json((file.metadata() or {})[_ENTRY]))
            # Copies, because safetensors returns unaligned tensors, and alignment can change the last bit of a sum.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if about.get("format") != FORMAT:
            raise InputError(f"{path} has format {about.get('format')}, this lotnet reads {FORMAT}: train again")
        if about.pop("sha256") != _digest(about, tensors):
            raise ValueError("checksum")
        del about["format"]
        position = convert(Position, about)
    except InputError:
        raise
    except OSError as error:
        raise unreadable(path, error) from None
    except (SafetensorError, KeyError, TypeError, ValueError):
        raise DamagedError(f"{path} is damaged and is not used: delete it, or resume from an older one") from None
    if fingerprint is not None and position.fingerprint != fingerprint:
        raise InputError(
            f"{path} was written with other settings than config.yaml beside it has: put config.yaml back as it was, "
            "or start a new run"
        )
    return position, tensors


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state by parameter name: tensors only, because the learning rate follows from the position."""
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
            # PyTorch's optimizers keep these on the CPU.
            place = "cpu" if key in ("step", "mu_product") else parameter.device
            optimizer.state[parameter][key] = tensor.to(place)


def add_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put `prefix.` before the name of each tensor."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def strip_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Undo `add_prefix`: select the tensors whose names start with `prefix.`, and remove the prefix."""
    return {
        name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")
    }


def _digest(about: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    shapes = {name: [str(tensor.dtype), *tensor.shape] for name, tensor in sorted(tensors.items())}
    digest = hashlib.sha256(json.dumps([about, shapes], sort_keys=True).encode())
    for _, tensor in sorted(tensors.items()):
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
