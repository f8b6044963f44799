"""What a receiver says of a message that it cannot read."""

from __future__ import annotations


class WireError(ValueError):
    """A message that is cut, padded, damaged, or was made by another codec or for another vector."""
