"""What is no tracker is refused; somebody else's library may fail or hang, and signals still reach the run."""

import signal
import threading
import time

import pytest

from fedcomp.tracking.call_with_timeout import CallWithTimeout
from tests.forked import context
from tests.raising import raising


def test_an_exception_comes_back_as_a_value() -> None:
    call_with_timeout, error = CallWithTimeout(), RuntimeError("no")
    assert call_with_timeout(raising(error), 5) is error
    assert call_with_timeout(lambda: 3, 5) is None
    call_with_timeout.close()


def test_calls_are_made_in_order_in_one_other_thread() -> None:
    call_with_timeout, seen = CallWithTimeout(), []
    for number in range(20):
        call_with_timeout(lambda number=number: seen.append((number, threading.current_thread().name)), 5)
    assert [number for number, _ in seen] == list(range(20))
    assert {name for _, name in seen} != {threading.current_thread().name}
    assert len({name for _, name in seen}) == 1
    call_with_timeout.close()


def test_a_call_that_hangs_is_given_up() -> None:
    call_with_timeout, free = CallWithTimeout(), threading.Event()
    began = time.perf_counter()
    assert isinstance(call_with_timeout(free.wait, 0.05), TimeoutError)
    assert time.perf_counter() - began < 5
    free.set()
    call_with_timeout.close()


def _a_call_that_never_ends() -> None:
    CallWithTimeout()(threading.Event().wait, 0.05)


def test_a_process_ends_although_a_call_hangs() -> None:
    process = context.Process(target=_a_call_that_never_ends, daemon=True)
    process.start()
    process.join(20)
    assert process.exitcode == 0


def test_what_a_signal_handler_raises_is_not_swallowed() -> None:
    """As on a cluster, whose launcher raises RuntimeError from its handler when the time is over."""
    before = signal.signal(signal.SIGUSR2, raising(RuntimeError("time is over")))
    call_with_timeout = CallWithTimeout()
    try:
        with pytest.raises(RuntimeError, match="time is over"):
            call_with_timeout(lambda: (signal.raise_signal(signal.SIGUSR2), time.sleep(0.2)), 10)
    finally:
        signal.signal(signal.SIGUSR2, before)
        call_with_timeout.close()


class NoTracker:
    """It has the methods of a tracker, but not its defaults."""

    def start(self, run) -> None:
        raise AssertionError


def test_what_is_no_tracker_is_refused(fedcomp, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedcomp("rounds=1", f"tracker._target_={__name__}.NoTracker") == 1
    assert "made a NoTracker, which is no Tracker: let its class inherit from Tracker" in capsys.readouterr().err
