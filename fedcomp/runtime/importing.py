"""Importing large packages without garbage collection, which takes a seventh of the time of importing torch."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Context manager: no garbage is collected. Modules leave hardly any, and are searched again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
