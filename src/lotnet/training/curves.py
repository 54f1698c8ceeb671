"""Curves of a training run for TensorBoard, written from this thread.

TensorBoard's own writer has a thread, whose traceback would fill the terminal when the disk is full.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rich.console import Console

_ELSEWHERE = "metrics.jsonl has the curves"


class Curves:
    """A file of scalars for TensorBoard, or nothing without the extra `track` or where it cannot be written.

    Curves are for looking at: what prevents them is said once, and never ends the training.
    """

    def __init__(self, folder: Path, done: int, console: Console) -> None:
        """Write into the folder. Points after step `done`, from a killed session, are dropped."""
        self._console = console
        self._file: IO[bytes] | None = None
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError:
            self._say(f"{_ELSEWHERE}; to see them in TensorBoard: `pip install tensorboard`")
            return
        self._event, self._summary, self._records = Event, Summary, RecordWriter
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}").open("wb", buffering=0)
        except OSError as error:
            self._stop(error)
            return
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=done + 1, session_log=SessionLog(status=SessionLog.START)))

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to each named curve."""
        if self._file is not None:
            points = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            self._write(self._event(step=step, summary=self._summary(value=points)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, event: Any) -> None:
        if self._file is None:
            return
        event.wall_time = time.time()
        try:
            self._records(self._file).write(event.SerializeToString())
        except OSError as error:
            self._stop(error)

    def _stop(self, error: OSError) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
        self._say(f"no more curves for TensorBoard ({error.strerror}); {_ELSEWHERE}")

    def _say(self, sentence: str) -> None:
        self._console.print(sentence, highlight=False, markup=False, soft_wrap=True)
