"""A locale whose encoding is not UTF-8, as some clusters have."""

import locale
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ascii_locale() -> Iterator[None]:
    """Within the block a file that is opened without an encoding is read as ASCII."""
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    try:
        yield
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
