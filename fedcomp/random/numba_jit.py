"""numba's compiler, for loops on a CPU that are too slow as tensor operations.

Importing this module takes half a second: import it, and modules that use it, only for large inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled, without Python's global lock (GIL), and cached on disk where that is possible.

    numba caches compiled code beside the file, or under NUMBA_CACHE_DIR; where neither is writable, each process
    compiles again. numba's own threads are not used: its threading layer forbids calls from our worker threads.
    """
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba finds no writable folder
        return njit(nogil=True)(function)
