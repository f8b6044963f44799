"""Somebody else's library may fail or hang; signals still reach the run."""

import signal
import threading
import time

import pytest

from fedcomp.tracking.call_with_timeout import CallWithTimeout


def test_an_exception_comes_back_as_a_value() -> None:
    call_with_timeout, error = CallWithTimeout(), RuntimeError("no")

    def fail() -> None:
        raise error

    assert call_with_timeout(fail, 5) is error
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


def test_what_a_signal_handler_raises_is_not_swallowed() -> None:
    """As on a cluster, whose launcher raises RuntimeError from its handler when the time is over."""

    def over(*_: object) -> None:
        raise RuntimeError("time is over")

    call_with_timeout, before = CallWithTimeout(), signal.signal(signal.SIGUSR2, over)
    try:
        with pytest.raises(RuntimeError, match="time is over"):
            call_with_timeout(lambda: (signal.raise_signal(signal.SIGUSR2), time.sleep(0.2)), 10)
    finally:
        signal.signal(signal.SIGUSR2, before)
        call_with_timeout.close()
