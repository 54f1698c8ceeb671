"""Progress display of a training run: a live bar on a terminal, else lines; curves in TensorBoard.

Invariant: without a terminal, no `SILENCE` passes without a line, however long a step takes.
"""

import threading
import time
from pathlib import Path
from typing import Self

from lightning_fabric import Fabric
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from lotnet.certification.plain import in_255ths
from lotnet.progress import duration
from lotnet.runs.metrics import EpochMetrics
from lotnet.training.curves import Curves

SILENCE = 25.0
"""Seconds after which a line is printed if nothing else was."""


class Display:
    """Progress display of the first process; the others stay silent."""

    def __init__(
        self, console: Console, folder: Path, epochs: int, steps: int, epoch: int, step: int, fabric: Fabric
    ) -> None:
        """Training continues at `step` of `epoch`; each of `epochs` has `steps`. TensorBoard writes into the folder."""
        self._console = console
        self._speak = fabric.is_global_zero
        self._epochs, self._steps = epochs, steps
        self._begin = epoch * steps + step
        self._start = time.perf_counter()
        self._scores = ""
        self._bar = Progress(  # fits 80 columns
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not (self._speak and console.is_terminal),
            transient=True,
        )
        name = f"epoch {epoch + 1}/{epochs}"
        # If Triton has no compiled kernels for this GPU yet, it compiles them, which takes most of a minute.
        text = "first steps; kernels may be compiled" if fabric.device.type != "cpu" else ""
        self._task = self._bar.add_task(name, total=epochs * steps, completed=self._begin, text=text)
        self._curves = Curves(folder / "tensorboard", self._begin, console) if self._speak else None
        self._status = f"{name}: {text or 'first step'}"
        self._last_line = self._start
        self._ended = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self._bar.start()
        if self._speak and not self._console.is_terminal:
            self._heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._heartbeat.is_alive():
            self._heartbeat.join()
        self._bar.stop()
        if self._curves:
            self._curves.close()

    def step(self, epoch: int, step: int, loss: float) -> None:
        """Update the bar. `loss` is the mean of this epoch so far."""
        done = epoch * self._steps + step
        rate = (done - self._begin) / (time.perf_counter() - self._start)
        name, text = f"epoch {epoch + 1}/{self._epochs}", f"{rate:.3g} steps/s, loss {loss:.3f}{self._scores}"
        self._bar.update(self._task, description=name, completed=done, text=text)
        left = duration((self._epochs * self._steps - done) / rate)
        self._status = f"{name}, step {step} of {self._steps}: loss {loss:.4f}, about {left} left"

    def epoch(self, record: EpochMetrics, radius: float) -> None:
        """Show a finished epoch, with the accuracy certified at `radius`."""
        scores = ""
        if record.clean is not None:
            certified = record.certified[in_255ths(radius)]
            self._scores = f", acc {record.clean:.1%}, cert {certified:.1%}"
            scores = f"  validation accuracy {record.clean:.1%}, certified {certified:.1%} at {in_255ths(radius)}"
        if self._speak and not self._console.is_terminal:
            self._print(f"epoch {record.epoch}/{self._epochs}  loss {record.loss:.4f}{scores}  {record.seconds:.1f} s")
        if self._curves:
            scalars = {"train/loss": record.loss, "train/lr": record.lr, "validation/clean": record.clean}
            scalars |= {f"validation/certified at {name}": value for name, value in record.certified.items()}
            known = {name: value for name, value in scalars.items() if value is not None}
            self._curves.add(known, record.epoch * self._steps)

    def _print(self, line: str) -> None:
        self._last_line = time.perf_counter()
        self._console.print(line, soft_wrap=True, highlight=False)

    def _beat(self) -> None:
        """Print the last status whenever it has been silent for long."""
        while not self._ended.wait(max(0.0, self._last_line + SILENCE - time.perf_counter())):
            if time.perf_counter() - self._last_line >= SILENCE:
                self._print(self._status)
