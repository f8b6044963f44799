"""Values of a parameter that the thorough tests add to those of the fast ones."""

from collections.abc import Iterable
from typing import Any

import pytest


def thorough(values: Iterable[Any]) -> list[Any]:
    """`parametrize("num", [7, *thorough([2, 256])])`: the fast tests take 7, the thorough ones 2 and 256."""
    return [pytest.param(value, marks=pytest.mark.thorough) for value in values]


def thorough_rows(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """As `thorough`, of several parameters."""
    return [pytest.param(*row, marks=pytest.mark.thorough) for row in rows]
