"""The test set as a whole, and nothing beside it."""


def pooled() -> None:
    """No figures by client."""
