"""A run directory: settings, environment, metrics and checkpoints. Training writes it, everything else reads it.

Invariants: `config.yaml` alone repeats the run; every file carries a format version; every file is written whole and
renamed, so a process killed at any moment leaves a directory that `--resume` can continue.
"""

import dataclasses
import datetime
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lotnet.config import RunConfig
from lotnet.data import Dataset
from lotnet.errors import InputError
from lotnet.files import atomic_write, exclusive_lock, make_folder
from lotnet.models import ImageSpec
from lotnet.runs.checkpoint import Checkpoints, DamagedError, part, read
from lotnet.runs.data import image_spec

FORMAT = 1
_PARTS = (
    "config.yaml",
    "environment.json",
    "metrics.jsonl",
    "checkpoints",
    "tensorboard",
    "model",
    "certificates.json",
    "attacks.json",
    "report.html",
    "analysis",
)


class Run:
    """`Run.create(path, config)` or `Run.open(path)`."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._metrics = path / "metrics.jsonl"
        self._environment = path / "environment.json"

    @staticmethod
    def create(path: Path, config: RunConfig, overwrite: bool = False) -> "Run":
        """A new directory, or an empty one. `overwrite` first removes the run that is there, and nothing but a run."""
        _make_room(path, overwrite)
        make_folder(path / "checkpoints", "choose another --out")
        atomic_write(path / "config.yaml", config.to_yaml().encode())
        return Run(path, config)

    @staticmethod
    def open(path: Path) -> "Run":
        try:
            text = (path / "config.yaml").read_text()
        except (OSError, UnicodeDecodeError):
            raise InputError(f"{path} holds no run: start one with `lotnet train --out {path}`") from None
        return Run(path, RunConfig.from_yaml(text, str(path / "config.yaml")))

    def images(self) -> ImageSpec:
        """What the model was built for, known without the data."""
        stored = self.environment()["images"]
        return ImageSpec(**{**stored, "mean": tuple(stored["mean"])})

    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the logits."""
        return tuple(self.environment()["classes"])

    def best_model(self) -> nn.Sequential:
        """The model with the weights of the best checkpoint, in `eval()` mode on the CPU."""
        if not self.checkpoints.best.is_file():
            raise InputError(
                f"{self.path} has no finished epoch yet: continue it with `lotnet train --resume {self.path}`"
            )
        _, tensors = read(self.checkpoints.best, self.config.fingerprint())
        model = self.config.model.build(self.images())
        if self.config.trainer.precision == "double":
            model = model.double()
        model.load_state_dict(part(tensors, "weights"))
        return model.eval()

    def best_digest(self) -> str | None:
        """SHA-256 of the best checkpoint, by which certificates say whose they are; None where it is not there."""
        if not self.checkpoints.best.is_file():
            return None
        return hashlib.sha256(self.checkpoints.best.read_bytes()).hexdigest()

    def check_certified(self, certificates: dict[str, Any]) -> None:
        """Refuse certificates of weights that training has replaced since.

        Without the weights, as in a run that was copied without its checkpoints, there is nothing to compare.
        """
        known, now = certificates.get("checkpoint"), self.best_digest()
        if None not in (known, now) and known != now:
            raise InputError(
                f"the training of {self.path} went on after it was certified: make its certificates again with "
                f"`lotnet certify {self.path}`"
            )

    def is_finished(self) -> bool:
        """Whether the last epoch was trained and saved."""
        try:
            position, _ = read(self.checkpoints.steps()[-1], self.config.fingerprint())
        except (IndexError, DamagedError):  # none yet, or none that is whole: training sees to it
            return False
        return position.epoch == self.config.trainer.epochs

    def metrics(self) -> list[dict[str, Any]]:
        """One record for each epoch that was finished."""
        text = self._metrics.read_text() if self._metrics.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def add_metrics(self, record: dict[str, Any]) -> int:
        """Append one epoch; returns the length of the file in bytes."""
        before = self._metrics.read_bytes() if self._metrics.exists() else b""
        content = before + json.dumps({"format": FORMAT, **record}).encode() + b"\n"
        atomic_write(self._metrics, content)
        return len(content)

    def cut_metrics(self, length: int) -> None:
        """Forget epochs finished after the checkpoint that is resumed: they come again."""
        if self._metrics.exists():
            atomic_write(self._metrics, self._metrics.read_bytes()[:length])

    def note_session(
        self, dataset: Dataset, parameters: int, device: str, world_size: int, finished: bool = False
    ) -> None:
        """Record where this training, or this part of it, takes place. Refuses data that have changed since.

        Where it is `finished` nothing takes place any more, and only a record that is lost is written again.
        """
        built_for = dataclasses.asdict(image_spec(dataset))
        known: dict[str, Any] = {"sessions": []}
        if self._environment.exists():
            known = self.environment()
            if ImageSpec(**known["images"]) != ImageSpec(**json.loads(json.dumps(built_for))):
                raise InputError(
                    f"the images of {dataset.name} are not those that {self.path} was started with: put them back, or "
                    "start a new run"
                )
            if finished:
                return
        session = {
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": sys.argv,
            "commit": _commit(),
            "versions": {"python": platform.python_version()}
            | {name: metadata.version(name) for name in ("lotnet", "torch", "numpy", "lightning-fabric")}
            | {"cuda": torch.version.cuda},
            "hardware": {
                "machine": platform.machine(),
                "processor": _processor(),
                "cores": os.cpu_count(),
                "threads": torch.get_num_threads(),
                "device": torch.cuda.get_device_name() if device.startswith("cuda") else device,
                "processes": world_size,
            },
        }
        content = {
            "format": FORMAT,
            "data": dataset.name,
            "classes": list(dataset.classes),
            "images": built_for,
            "parameters": parameters,
            "sessions": [*known["sessions"], session],
        }
        atomic_write(self._environment, json.dumps(content, indent=1).encode())

    def environment(self) -> dict[str, Any]:
        """What the run was made with and for, one record for each session."""
        try:
            known = json.loads(self._environment.read_text())
        except (OSError, ValueError):
            raise InputError(
                f"{self._environment} is missing or damaged: resume the run (`lotnet train --resume {self.path}`) "
                "after deleting it, and it is written again"
            ) from None
        if known.get("format") != FORMAT:
            raise InputError(
                f"{self._environment} has format {known.get('format')}, this lotnet reads {FORMAT}: train again"
            )
        return known


def fresh_path(recipe: str, folder: Path = Path("runs")) -> Path:
    """runs/RECIPE-N with the first N that is free."""
    name = recipe.removesuffix(".yaml").removesuffix(".yml").strip("/.").replace("/", "-")
    n = 1
    while (folder / f"{name}-{n}").exists():
        n += 1
    return folder / f"{name}-{n}"


def _make_room(path: Path, overwrite: bool) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise InputError(f"{path} is a file: choose another --out")
    if not any(path.iterdir()):
        return
    if not overwrite:
        raise InputError(
            f"{path} exists: continue it with --resume {path}, replace it with --overwrite, or choose another --out"
        )
    if not (path / "config.yaml").is_file():
        raise InputError(f"{path} is not a run and is not overwritten: choose another --out")
    with exclusive_lock(path):
        for name in _PARTS[::-1]:  # config.yaml last: a killed removal can be started again
            victim = path / name
            if victim.is_dir() and not victim.is_symlink():
                shutil.rmtree(victim)
            else:
                victim.unlink(missing_ok=True)


def _commit() -> str | None:
    """Of the checkout lotnet runs from, marked if it has changes; none for an installed wheel."""
    if "site-packages" in Path(__file__).parts:
        return None
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
