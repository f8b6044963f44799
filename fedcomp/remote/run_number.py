"""A run's own number: it tells two runs of the same options apart, whose clients' states do not go together.

The server draws it once for its run's folder, and each client keeps it beside its state. No result depends on it.
"""

import re
import secrets
from pathlib import Path

from fedcomp.records.atomic_write import write_atomically

FILE = "run_number"


def number_of(folder: Path) -> str | None:
    """The number that is kept in a folder; None: there is none. Raises ValueError: it is damaged."""
    path = folder / FILE
    if not path.exists():
        return None
    number = path.read_bytes().decode(errors="replace").strip()
    if not re.fullmatch("[0-9a-f]+", number):
        raise ValueError(
            f"{path} is damaged: put it back; or a client goes on once it is removed, and a server starts the run anew "
            "with overwrite=true"
        )
    return number


def keep_number(folder: Path, number: str) -> None:
    """Keep the number in a folder. Raises ValueError: it cannot be written."""
    write_atomically(folder / FILE, f"{number}\n".encode())


def drawn_number(folder: Path) -> str:
    """The number of the run in the server's folder, drawn if there is none yet. Raises as both."""
    number = number_of(folder)
    if number is None:
        number = secrets.token_hex(8)
        keep_number(folder, number)
    return number
