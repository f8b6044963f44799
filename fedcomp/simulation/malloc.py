"""Keep freed memory in the process: activations of every step otherwise go back to the system and are faulted in again.

glibc gives large blocks back as soon as they are freed. A training step frees and takes megabytes of them, and zeroing
fresh pages is 5 to 30 per cent of a convolutional network's step on a CPU (`make bench` measures both).
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
THRESHOLDS = (1 << 30, 32 << 20)
"""Bytes; older C libraries refuse more than 32 MiB."""


def keep_freed_memory() -> bool:
    """Tell glibc to reuse freed blocks from now on, all threads from one heap; False where the C library is another.

    One heap, since those that glibc makes for further threads hold 64 MiB each and send larger blocks to the system.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    kept = any(mallopt(M_MMAP_THRESHOLD, size) and mallopt(M_TRIM_THRESHOLD, size) for size in THRESHOLDS)
    return bool(mallopt(M_ARENA_MAX, 1)) and kept
