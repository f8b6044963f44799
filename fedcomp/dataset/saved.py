"""Reads what libraries have saved: a folder of `save_to_disk` of the library datasets, a Parquet file."""

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


def load_parquet(file: Path, other: str) -> Any:
    """pyarrow's table. ValueError: it is not installed (`other`: what to save instead), or cannot read the file."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ValueError(
            f"{file} is a Parquet file, which pyarrow reads: pip install pyarrow, or save {other}"
        ) from None
    try:
        return parquet.read_table(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(f"{file} cannot be read as a Parquet file ({first_line(error)}): save it as one") from None
