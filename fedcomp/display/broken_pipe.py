"""Redirects a stream without a reader, such as a pipe whose `tee` has died, to the null device."""

from __future__ import annotations

import contextlib
import io
import os
from typing import TextIO


def forget(stream: TextIO) -> None:
    """Send what `stream` still holds, and gets, to the null device, so that the process can end without an error."""
    with contextlib.suppress(OSError, io.UnsupportedOperation):  # a stream in memory has no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
