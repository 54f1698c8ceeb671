"""What a person sees of a training run."""

import io
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from lotnet.certification.plain import RADII
from lotnet.runs.metrics import EpochMetrics
from lotnet.training import display as display_module
from lotnet.training.display import Display

RECORD = EpochMetrics(epoch=1, step=10, loss=1.25, lr=0.1, clean=0.75, certified={"36/255": 0.5}, seconds=2.0)


def seen(tmp_path: Path, device: str, terminal: bool, first: bool = True) -> str:
    """Everything printed until the end of an epoch, or until the first step ends."""
    fabric: Any = SimpleNamespace(is_global_zero=True, device=torch.device(device))
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    with Display(console, tmp_path, 3, 10, 0, 0, fabric) as display:
        if not first:
            display.step(0, 10, 1.25)
            display.epoch(RECORD, RADII[0])
            display.step(1, 1, 1.0)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_first_step_on_a_gpu_says_why_it_takes_long(tmp_path: Path, device: str) -> None:
    assert ("kernels may be compiled" in seen(tmp_path, device, terminal=True)) == (device == "cuda")


def test_a_terminal_shows_loss_and_accuracy(tmp_path: Path) -> None:
    text = seen(tmp_path, "cpu", terminal=True, first=False)
    assert "epoch 2/3" in text
    assert "loss 1.000, acc 75.0%, cert 50.0%" in text


def test_a_log_is_never_silent_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also during a single long step."""
    monkeypatch.setattr(display_module, "SILENCE", 0.01)
    fabric: Any = SimpleNamespace(is_global_zero=True, device=torch.device("cpu"))
    console = Console(file=io.StringIO(), width=100)
    assert isinstance(console.file, io.StringIO)
    with Display(console, tmp_path, 3, 10, 0, 0, fabric) as display:
        wait_for(console.file, "epoch 1/3: first step")
        display.step(1, 4, 1.25)
        wait_for(console.file, "epoch 2/3, step 4 of 10: loss 1.2500, about 0 s left")


def wait_for(file: io.StringIO, text: str) -> None:
    while text not in file.getvalue():
        time.sleep(0.001)


def test_a_log_gets_a_line_an_epoch(tmp_path: Path) -> None:
    text = seen(tmp_path, "cpu", terminal=False, first=False)
    assert "epoch 1/3  loss 1.2500  validation accuracy 75.0%, certified 50.0% at 36/255  2.0 s\n" in text
