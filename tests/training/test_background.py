"""Work that training does not wait for."""

import signal
import threading

import pytest

from lotnet.training.background import Background
from lotnet.training.signals import Interrupted


def test_all_work_is_done_in_order_on_exit() -> None:
    done: list[int] = []
    with Background() as background:
        for number in range(20):
            background(lambda number=number: done.append(number))
    assert done == list(range(20))


def test_training_continues_while_work_runs() -> None:
    go_on, released = threading.Event(), []
    with Background() as background:
        background(lambda: released.append(go_on.wait(10)))
        background(lambda: None)
        go_on.set()
    assert released == [True], "a call has waited for what it handed in"


def test_a_third_job_waits_for_the_first() -> None:
    go_on, handed_in = threading.Event(), threading.Event()
    with Background() as background:

        def hand_in_three() -> None:
            background(lambda: go_on.wait(60))
            background(lambda: None)
            background(lambda: None)
            handed_in.set()

        other = threading.Thread(target=hand_in_three)
        other.start()
        assert not handed_in.wait(0.2)
        go_on.set()
        other.join()
        assert handed_in.is_set()


def fail() -> None:
    raise OSError("the disk is full")


def test_a_failure_is_raised_on_exit_and_later_work_is_skipped() -> None:
    done: list[int] = []
    with pytest.raises(OSError, match="full"), Background() as background:
        background(fail)
        background(lambda: done.append(1))
    assert done == []


def test_a_failure_is_raised_by_a_later_call() -> None:
    reached = 0
    with pytest.raises(OSError, match="full"), Background() as background:
        background(fail)
        for _ in range(2):
            background(lambda: None)
            reached += 1
        reached += 10
    assert reached < 10


@pytest.mark.parametrize("request_", [Interrupted(signal.SIGTERM), KeyboardInterrupt()])
def test_a_failure_is_reported_even_if_training_was_stopped(request_: BaseException) -> None:
    """Otherwise the command would say that its checkpoint was saved."""
    with pytest.raises(OSError, match="full"), Background() as background:
        background(fail)
        raise request_


def test_a_failure_does_not_hide_another() -> None:
    with pytest.raises(ZeroDivisionError) as caught, Background() as background:
        background(fail)
        raise ZeroDivisionError
    assert caught.value.__notes__ == ["and a background task failed: the disk is full"]
