"""Calls of a foreign library in a thread, with a timeout: if one fails or hangs, the run continues, and ends."""

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class CallWithTimeout:
    """Makes calls one after another in its own thread and waits for each, up to a timeout.

    An exception of the call comes back as a value, so nothing here catches exceptions: what a signal handler raises
    (Ctrl-C, a cluster's time-out) is raised in the main thread and passes through. The process does not wait for the
    thread when it ends, as it would for that of a ThreadPoolExecutor.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, call: Callable[[], Any], seconds: float) -> BaseException | None:
        """Make the call; what it raised, or TimeoutError if it is not done after `seconds`. None: it went well."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="call_with_timeout", daemon=True)
            self._thread.start()
        future: Future[Any] = Future()
        self._calls.put((future, call))
        try:
            return future.exception(seconds)
        except TimeoutError as late:
            return late

    def close(self) -> None:
        """End the thread once its call is done, without waiting."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._calls.get_nowait()
        self._calls.put(None)

    def _work(self) -> None:
        while (given := self._calls.get()) is not None:
            future, call = given
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
