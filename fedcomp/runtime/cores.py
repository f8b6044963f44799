"""The cores of a processor that this process may use."""

import os


def num_cores() -> int:
    """How many there are."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1
