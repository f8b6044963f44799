"""A run's own number: it tells two runs of the same options apart, whose clients' states do not go together.

The server draws it once for its run's folder, and each client keeps it beside its state. No result depends on it.
"""

import secrets
from pathlib import Path

from fedcomp.records.atomic_write import write_atomically

FILE = "run_number"


def number_of(folder: Path) -> str | None:
    """The number that is kept in a folder; None: there is none."""
    path = folder / FILE
    return path.read_text(encoding="utf-8").strip() if path.exists() else None


def keep_number(folder: Path, number: str) -> None:
    """Keep the number in a folder. Raises ValueError: it cannot be written."""
    write_atomically(folder / FILE, f"{number}\n".encode())


def drawn_number(folder: Path) -> str:
    """The number of the run in the server's folder, drawn if there is none yet. Raises as `keep_number`."""
    number = number_of(folder)
    if number is None:
        number = secrets.token_hex(8)
        keep_number(folder, number)
    return number
