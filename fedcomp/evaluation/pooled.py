"""The test set as a whole, and nothing beside it."""

from __future__ import annotations


def pooled() -> None:
    """No figures by client."""
