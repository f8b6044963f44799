"""Callers of `fedcomp.check`, whose suites every codec and every algorithm must pass, and its planted faults."""

from fedcomp.check import world

__all__ = ["world"]
