"""No network: bits are counted, and nothing says how long they take."""

from __future__ import annotations


def none() -> None:
    """No clock."""
