"""Ctrl-C before anything is there to be saved: one line, and status 130.

An exception in its place can be raised within an import, where torch and numpy take it for a part that is not
installed, and go on half imported.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

STATUS = 128 + signal.SIGINT


def at_once(line: str) -> None:
    """From here on, the first Ctrl-C ends the process with `line`; torchrun's further processes say nothing."""

    def leave(number: int, frame: FrameType | None) -> None:
        if os.environ.get("RANK", "0") == "0":
            os.write(2, f"{line}\n".encode())
        os._exit(STATUS)

    leave.is_early = True  # type: ignore[attr-defined]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored: a job in the background
        signal.signal(signal.SIGINT, leave)


def by_exception() -> None:
    """From here on, Ctrl-C is a KeyboardInterrupt again: there is something to be closed."""
    if getattr(signal.getsignal(signal.SIGINT), "is_early", False):
        signal.signal(signal.SIGINT, signal.default_int_handler)
