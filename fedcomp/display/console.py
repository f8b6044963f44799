"""One line for the user on the standard error stream."""

from __future__ import annotations

import sys

from fedcomp.display.broken_pipe import forget


def say(text: str) -> None:
    """One line on the standard error stream; nothing once nobody reads it."""
    try:
        print(f"fedcomp: {text}", file=sys.stderr, flush=True)
    except OSError:
        forget(sys.stderr)
