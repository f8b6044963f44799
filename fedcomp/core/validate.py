"""Checks of options that are numbers."""

from __future__ import annotations


def positive(name: str, value: float) -> None:
    """Raise ValueError unless the option is a number above 0."""
    if not is_number(value) or not value > 0:
        raise ValueError(f"{name}={value} must be a positive number")


def at_least_zero(name: str, value: float) -> None:
    """Raise ValueError unless the option is a number, 0 or more."""
    if not is_number(value) or not value >= 0:
        raise ValueError(f"{name}={value} must be a number, 0 or more")


def check_seed(name: str, value: object) -> None:
    """Raise ValueError unless the option names draws: a whole number, 0 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name}={value} must be a whole number, 0 or more")


def unit_interval(name: str, value: float) -> None:
    """Raise ValueError unless the option is a number in [0, 1)."""
    if not is_number(value) or not 0 <= value < 1:
        raise ValueError(f"{name}={value} must be in [0, 1)")


def is_number(value: object) -> bool:
    """Whether the value is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
