"""Keeps freed memory in the process, so that large buffers are not paged in anew at every step.

glibc hands blocks above M_MMAP_THRESHOLD straight back to the system; every forward pass then faults its activations
in again, which costs convolutional networks on a CPU a tenth and more of their time (`make bench`).
"""

from __future__ import annotations

import ctypes
import ctypes.util

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Raise malloc's mmap and trim thresholds; False where the C library has no such setting (macOS, musl)."""
    try:
        mallopt = ctypes.CDLL(ctypes.util.find_library("c")).mallopt
    except (AttributeError, OSError):
        return False
    return all(mallopt(setting, LARGEST) == 1 for setting in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD))
