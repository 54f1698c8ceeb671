"""environment.json: the data of a run, and the hardware and versions of each of its sessions."""

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import torch

from lotnet.models import ImageSpec

FORMAT = 1


@dataclass(frozen=True)
class Hardware:
    """The machine of a session."""

    device: str
    """Name of the GPU, or cpu."""
    processes: int
    processor: str
    cores: int | None
    machine: str = ""
    threads: int | None = None


@dataclass(frozen=True)
class Session:
    """One process, or group of processes, that trained a part of the run."""

    started: str
    """UTC, ISO 8601."""
    command: list[str]
    """The command line, or the one that does what a call in Python did."""
    commit: str | None
    """What the environment variable `LOTNET_COMMIT` says, else the commit of the checkout, else None."""
    versions: dict[str, str | None]
    hardware: Hardware

    @staticmethod
    def here(device: str, processes: int, command: Sequence[str] = ()) -> "Session":
        """Describe the session of this process."""
        versions: dict[str, str | None] = {"python": platform.python_version()}
        versions |= {name: _version(name) for name in ("lotnet", "torch", "numpy", "lightning-fabric")}
        return Session(
            started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            command=list(command or sys.argv),
            commit=_commit(),
            versions=versions | {"cuda": torch.version.cuda},
            hardware=Hardware(
                device=torch.cuda.get_device_name() if device.startswith("cuda") else device,
                processes=processes,
                processor=_processor(),
                cores=os.cpu_count(),
                machine=platform.machine(),
                threads=torch.get_num_threads(),
            ),
        )


@dataclass(frozen=True)
class Environment:
    """Data and sessions of a run. Invariant: this and config.yaml are enough to build the model, without the data."""

    data: str
    classes: tuple[str, ...]
    """Names of the classes, in the order of the logits."""
    images: ImageSpec
    parameters: int
    sessions: tuple[Session, ...] = field(default=())
    initial: str | None = None
    """SHA-256 of the weights of the model that training started from; None if it started from random weights."""


def _version(name: str) -> str | None:
    """The version of an installed distribution. A source tree on PYTHONPATH is none, and neither is a bundled copy."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the checkout that lotnet runs from, `-dirty` if it has changes; None for an installed wheel.

    `LOTNET_COMMIT` comes first, for a copy of the files without their history.
    """
    if named := os.environ.get("LOTNET_COMMIT"):
        return named
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
