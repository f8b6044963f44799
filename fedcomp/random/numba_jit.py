"""numba's compiler, for loops on a CPU that are too slow as tensor operations.

Importing this module takes half a second: import it, and modules that use it, only for large inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

_OPTIONS: Any = {"nogil": True, "error_model": "numpy"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled, without Python's global lock (GIL), and cached on disk where that is possible.

    numba caches compiled code beside the file, or under NUMBA_CACHE_DIR; where neither is writable, each process
    compiles again. numba's own threads are not used: its threading layer forbids calls from our worker threads. A
    division by zero gives what NumPy gives: a check would keep a loop from using vectors.
    """
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # numba finds no writable folder
        return njit(**_OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as a part of the compiled functions that call it, where its arguments stay in registers."""
    return njit(forceinline=True, **_OPTIONS)(function)
