"""What a check says of a part that does not pass."""

from __future__ import annotations


class Failed(AssertionError):
    """A part does not pass a check. The text is the smallest example that was found."""
