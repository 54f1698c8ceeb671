"""A background thread for work that training does not wait for."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from lotnet.training.signals import Interrupted

_MOST_PENDING = 2  # an epoch writes two files at most: its checkpoint, and the best checkpoint


class Background:
    """Context manager that runs functions in one background thread, in order. The exit waits for all of them.

    Invariants:

    * at most two functions are pending, which bounds memory. A third call waits for the first function;
    * an exception of a function is raised by one of the next two calls or by the exit, and later functions are not run;
    * the exit does not replace an exception that is being raised already. It does replace a request to stop, because
      that would tell the user that everything was saved.
    """

    def __enter__(self) -> Self:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._pending: deque[Future[None]] = deque()
        self._failed = False
        return self

    def __call__(self, work: Callable[[], object]) -> None:
        while self._pending and (len(self._pending) >= _MOST_PENDING or self._pending[0].done()):
            self._pending.popleft().result()
        self._pending.append(self._thread.submit(self._do, work))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            while self._pending:
                self._pending.popleft().result()
        except Exception as failure:
            if error is None or isinstance(error, Interrupted | KeyboardInterrupt):
                raise
            error.add_note(f"and a background task failed: {failure}")
        finally:
            self._thread.shutdown()

    def _do(self, work: Callable[[], object]) -> None:
        if self._failed:
            return
        try:
            work()
        except BaseException:
            self._failed = True
            raise
