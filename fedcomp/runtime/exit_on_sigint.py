"""Ctrl-C before there is anything to save: one line, and exit status 130.

A KeyboardInterrupt within an import would be caught by torch or numpy, which take it for an optional part that is not
installed and go on half imported.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

STATUS = 128 + signal.SIGINT


class ExitOnSigint:
    """A handler of Ctrl-C that ends the process with `line`; torchrun's further processes say nothing."""

    def __init__(self, line: str) -> None:
        self.line = line

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.environ.get("RANK", "0") == "0":
            os.write(2, f"{self.line}\n".encode())
        os._exit(STATUS)


def exit_on_sigint(line: str) -> None:
    """Installs the handler: from now on, Ctrl-C ends the process with `line`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored: a job in the background
        signal.signal(signal.SIGINT, ExitOnSigint(line))


def restore_sigint() -> None:
    """Restores Python's SIGINT handler so that clean-up code runs."""
    if isinstance(signal.getsignal(signal.SIGINT), ExitOnSigint):
        signal.signal(signal.SIGINT, signal.default_int_handler)
