"""Somebody else's library may fail or hang; signals still reach the run."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from fedcomp.tracking.aside import Aside


def test_an_exception_comes_back_as_a_value() -> None:
    aside, error = Aside(), RuntimeError("no")

    def fail() -> None:
        raise error

    assert aside(fail, 5) is error
    assert aside(lambda: 3, 5) is None
    aside.close()


def test_calls_are_made_in_order_in_one_other_thread() -> None:
    aside, seen = Aside(), []
    for number in range(20):
        aside(lambda number=number: seen.append((number, threading.current_thread().name)), 5)
    assert [number for number, _ in seen] == list(range(20))
    assert {name for _, name in seen} != {threading.current_thread().name}
    assert len({name for _, name in seen}) == 1
    aside.close()


def test_a_call_that_hangs_is_given_up() -> None:
    aside, free = Aside(), threading.Event()
    began = time.perf_counter()
    assert isinstance(aside(free.wait, 0.05), TimeoutError)
    assert time.perf_counter() - began < 5
    free.set()
    aside.close()


def test_what_a_signal_handler_raises_is_not_swallowed() -> None:
    """As on a cluster, whose launcher raises RuntimeError from its handler when the time is over."""

    def over(*_: object) -> None:
        raise RuntimeError("time is over")

    aside, before = Aside(), signal.signal(signal.SIGUSR2, over)
    try:
        with pytest.raises(RuntimeError, match="time is over"):
            aside(lambda: (signal.raise_signal(signal.SIGUSR2), time.sleep(0.2)), 10)
    finally:
        signal.signal(signal.SIGUSR2, before)
        aside.close()
