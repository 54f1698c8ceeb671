"""Small training runs, in this process or another, and what they left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor

from lotnet.runs.checkpoint import Checkpoints, read

TINY = [
    "--model.channels=4",
    "--limit=200",
    "--trainer.batch_size=32",
    "--trainer.epochs=12",
    "--trainer.checkpoint_every=2",
    "--trainer.ema=0.9",
]
"""The default recipe (NAdam, one cycle), with every kind of state that a checkpoint holds."""


def start(*arguments: str, launcher: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start `lotnet ...` as a person would, on one thread."""
    command = [sys.executable, *(launcher or ("-m", "lotnet")), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], expected: int = 0) -> str:
    """Wait until the process ends with the expected code; return stdout and stderr together."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == expected, f"exit {process.returncode}\n{out}\n{err}"
    return out + err


def lotnet(*arguments: str, expected: int = 0) -> str:
    return finish(start(*arguments), expected)


def final_state(run: Path) -> dict[str, Tensor]:
    """All tensors of the last checkpoint except times, and the best weights."""
    checkpoints = Checkpoints(run / "checkpoints")
    _, last = read(checkpoints.steps()[-1])
    _, best = read(checkpoints.best)
    last.pop("progress.seconds")
    return last | {f"best.{name}": tensor for name, tensor in best.items()}


def curves(run: Path) -> list[dict]:
    """metrics.jsonl without times."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def assert_same(one: Path, other: Path) -> None:
    """Both runs are equal bit for bit."""
    a, b = final_state(one), final_state(other)
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []
    assert curves(one) == curves(other)
