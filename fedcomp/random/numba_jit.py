"""Functions compiled by numba, for what tensors are too slow for on a CPU.

Importing this module takes half a second: import it, and what is compiled by it, only where there is much to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled, free of Python's lock, and kept on disk where that is possible.

    numba keeps compiled code beside the file, or under NUMBA_CACHE_DIR; where neither can be written, each process
    compiles anew. Never with numba's own threads: draws are also made inside worker threads, which its layer forbids.
    """
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba finds no folder that it can write
        return njit(nogil=True)(function)
