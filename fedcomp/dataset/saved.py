"""Reads a folder that `save_to_disk` of the library datasets has written."""

from pathlib import Path
from typing import Any

from fedcomp.core.first_line import first_line


def load_saved(folder: Path) -> Any:
    """The data set, or its splits by name. ValueError: the library is missing, or cannot read the folder."""
    try:
        import datasets
    except ImportError:
        raise ValueError(f"the folder {folder} is read by the library datasets: pip install 'fedcomp[hf]'") from None
    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # whatever arrow, json and the library raise for damaged files
        raise ValueError(
            f"{folder} is no data set that the library datasets has saved ({first_line(error)}): save one there by "
            "save_to_disk"
        ) from None
