"""Lines for the user on the standard error stream, and what to do when nobody reads a stream any more."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO


def say(text: str) -> None:
    """Print one line on the standard error stream; print nothing once the stream cannot be written."""
    try:
        print(f"fedcomp: {text}", file=sys.stderr, flush=True)
    except OSError:
        redirect_to_null(sys.stderr)


def redirect_to_null(stream: TextIO) -> None:
    """Redirect a stream that cannot be written, such as a pipe whose `tee` has died, to the null device.

    What the stream still buffers goes there too, so that the process can end without an error.
    """
    with contextlib.suppress(OSError, io.UnsupportedOperation):  # a stream in memory has no file
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
