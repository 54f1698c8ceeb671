"""Work that training does not wait for."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from lotnet.training.signals import Interrupted

_UNDER_WAY = 2  # an epoch hands in two at most: its checkpoint, and the best so far


class Background:
    """While entered, a thread of its own that does what it is given, in order; leaving waits until all is done.

    Invariants: no more than two things are under way, so whoever hands in a third waits and memory stays bounded; what
    failed is raised by one of the next two calls or on leaving, and nothing is done after it. An error that is on its
    way out already is not replaced, only a request to stop, which says that all was saved.
    """

    def __enter__(self) -> Self:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._under_way: deque[Future[None]] = deque()
        self._failed = False
        return self

    def __call__(self, work: Callable[[], object]) -> None:
        while self._under_way and (len(self._under_way) >= _UNDER_WAY or self._under_way[0].done()):
            self._under_way.popleft().result()
        self._under_way.append(self._thread.submit(self._do, work))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            while self._under_way:
                self._under_way.popleft().result()
        except Exception as failure:
            if error is None or isinstance(error, Interrupted | KeyboardInterrupt):
                raise
            error.add_note(f"besides: {failure}")
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
