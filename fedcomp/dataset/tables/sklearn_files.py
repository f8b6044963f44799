"""The small tables that come inside scikit-learn, read without importing it.

`import sklearn.datasets` takes 0.8 s; the table itself is read in 20 ms, and once a process. A test holds both
readers together.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def read_table(file: str, delimiter: str | None = None) -> np.ndarray:
    """Numbers of `sklearn/datasets/data/<file>`, one row a sample, float64.

    Raises ValueError: scikit-learn is not installed, or has no such file.
    """
    return _table(table_file(file), delimiter).copy()


@functools.cache
def _table(path: Path, delimiter: str | None) -> np.ndarray:
    import numpy as np  # here, for only `load` needs it

    return np.loadtxt(path, delimiter=delimiter)


def table_file(file: str) -> Path:
    """Where `sklearn/datasets/data/<file>` lies. Raises ValueError: as `read_table`."""
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, "datasets", "data", file)
        if path.exists():
            return path
    raise ValueError(
        f"scikit-learn's file datasets/data/{file} was not found; install it: pip install 'scikit-learn>=1.4'"
    )
