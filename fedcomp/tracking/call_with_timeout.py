"""Calls of a foreign library in a thread, with a timeout: if one fails or hangs, the run continues."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class CallWithTimeout:
    """Makes calls one after another in its own thread and waits for each, up to a timeout.

    An exception of the call comes back as a value, so nothing here catches exceptions: what a signal handler raises
    (Ctrl-C, a cluster's time-out) is raised in the main thread and passes through.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="call_with_timeout")

    def __call__(self, call: Callable[[], Any], seconds: float) -> BaseException | None:
        """Make the call; what it raised, or TimeoutError if it is not done after `seconds`. None: it went well."""
        future = self._thread.submit(call)
        try:
            return future.exception(seconds)
        except TimeoutError as late:
            return late

    def close(self) -> None:
        """End the thread once its calls are done, without waiting."""
        self._thread.shutdown(wait=False, cancel_futures=True)
