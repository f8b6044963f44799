"""The default tracker does nothing; somebody else's library may fail or hang, and signals still reach the run."""

import signal
import threading
import time
from pathlib import Path

import pytest

from fedcomp.tracking.call_with_timeout import CallWithTimeout
from fedcomp.tracking.contract import Jsonl, RunInfo
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


RECORD = {"round": 0, "test/accuracy": 0.1, "bits/total": 0}


def test_it_writes_and_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    tracker = Jsonl()
    tracker.start(RunInfo(tmp_path, "toy", "hash", 0, {}))
    tracker.log(RECORD)
    tracker.finish("finished", RECORD)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
