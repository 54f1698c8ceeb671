"""Handle Ctrl-C, SIGTERM and SIGHUP as requests to stop, which the training loop checks between steps."""

import signal
from types import FrameType
from typing import Self


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that ask a run to stop. SIGHUP is left out if it is ignored, as under nohup."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return tuple(signals)


class Interrupted(Exception):
    """Training stopped on a signal, with a checkpoint saved. The command then exits with 128 + `signal`."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signal = signum


class StopRequest:
    """Context manager in which a first signal only sets `signal`. A second one of its kind has its usual effect."""

    def __init__(self) -> None:
        self.signal = 0

    def __enter__(self) -> Self:
        self._before = {s: signal.signal(s, self._note) for s in stop_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, _: FrameType | None) -> None:
        self.signal = signum
        signal.signal(signum, self._before[signal.Signals(signum)])
