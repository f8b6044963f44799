"""Lines for the user on the standard streams, and what to do when nobody reads a stream any more."""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from typing import Literal, TextIO


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


def prepare_streams() -> None:
    """Standard streams that are closed (`2>&-`) are the null device, and files do not get their numbers.

    Standard output writes what its encoding lacks (± in ASCII) as an escape, as standard error does.
    """
    if sys.stdin is None:
        sys.stdin = _null(0, "r")
    if sys.stdout is None:
        sys.stdout = _null(1, "w")
    if sys.stderr is None:
        sys.stderr = _null(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _null(number: int, mode: Literal["r", "w"]) -> TextIO:
    """The null device under this number, which processes that are started inherit."""
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)
    os.set_inheritable(number, True)
    return os.fdopen(number, mode)


@contextlib.contextmanager
def end_with_reader() -> Iterator[None]:
    """Ends the process without a message, as `cat` does, if `| head` has closed standard output. A decorator too."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as end:
        if not isinstance(end, BrokenPipeError) and not isinstance(end.__context__, BrokenPipeError):
            raise
        redirect_to_null(sys.stdout)  # rich ends a process with status 1, which says that a run failed
        sys.exit(128 + signal.SIGPIPE)
