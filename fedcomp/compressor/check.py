"""Checks that codecs share: one clear line for a wrong option, before the first round."""

from __future__ import annotations


def check_fraction(name: str, value: float) -> None:
    """Raise ValueError unless `value` is a number in (0, 1]."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:
        raise ValueError(f"{name}={value} must be a number in (0, 1]: the share of entries that is sent")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name}={value} must be one of {', '.join(allowed)}")


def check_positive(name: str, value: float, meaning: str) -> None:
    """Raise ValueError unless `value` is a positive, finite number."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):
        raise ValueError(f"{name}={value} must be a positive number: {meaning}")


def check_count(name: str, value: int) -> None:
    """Raise ValueError unless `value` is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value} must be a whole number, 1 or more")
