"""Lines for the user on the standard streams, and what to do when nobody reads a stream any more."""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
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


def write_any_character() -> None:
    """Standard output writes what its encoding lacks (± in ASCII) as an escape, as standard error does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def end_with_reader() -> Iterator[None]:
    """Ends the process without a message, as `cat` does, if `| head` has closed standard output. A decorator too."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
        sys.exit(128 + signal.SIGPIPE)
