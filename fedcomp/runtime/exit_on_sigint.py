"""Ctrl-C before anything is there to be saved: one line, and status 130.

An exception in its place can be raised within an import, where torch and numpy take it for a part that is not
installed, and go on half imported.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

STATUS = 128 + signal.SIGINT


class Leave:
    """A handler of Ctrl-C that ends the process with `line`; torchrun's further processes say nothing."""

    def __init__(self, line: str) -> None:
        self.line = line

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.environ.get("RANK", "0") == "0":
            os.write(2, f"{self.line}\n".encode())
        os._exit(STATUS)


def at_once(line: str) -> None:
    """From here on, the first Ctrl-C ends the process with `line`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored: a job in the background
        signal.signal(signal.SIGINT, Leave(line))


def by_exception() -> None:
    """From here on, Ctrl-C is a KeyboardInterrupt again: there is something to be closed."""
    if isinstance(signal.getsignal(signal.SIGINT), Leave):
        signal.signal(signal.SIGINT, signal.default_int_handler)
