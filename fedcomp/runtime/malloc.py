"""Keep freed memory in the process: activations of every step otherwise go back to the system and are faulted in again.

glibc gives large blocks back as soon as they are freed. A training step frees and takes megabytes of them, and zeroing
fresh pages is 5 to 30 per cent of a convolutional network's step on a CPU (`make bench` measures both).
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
THRESHOLDS = (128 << 20, 32 << 20)
"""Bytes from which a block goes back to the system when it is freed: kept blocks of gigabytes, cut by smaller ones,
doubled the memory of large cohorts. Older C libraries refuse more than 32 MiB."""
TRIM_BYTES = 1 << 30
"""How much free memory at the end of the heap is kept."""


def keep_freed_memory() -> bool:
    """Tell glibc to reuse freed blocks from now on, all threads from one heap; False where the C library is another.

    One heap, since those that glibc makes for further threads hold 64 MiB each and send larger blocks to the system.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    kept = any(mallopt(M_MMAP_THRESHOLD, size) for size in THRESHOLDS) and bool(mallopt(M_TRIM_THRESHOLD, TRIM_BYTES))
    return bool(mallopt(M_ARENA_MAX, 1)) and kept
