"""Figures of the benchmarks as lines of JSON, for `gpu_report.py`."""

import json
from pathlib import Path
from typing import Any


def keep(path: Path | None, **figures: Any) -> None:
    """Append one line to the file; None: keep nothing."""
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(figures) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of the file; none if it does not exist. A last line that was cut off is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found
