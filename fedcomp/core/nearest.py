"""What a wrong name was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SHOWN = 20
"""Names that a message lists; of more it says how many there are."""


def near(given: str, names: Iterable[str]) -> str:
    """`; did you mean 'price'? (there are: price, age, bmi)`: the names there are, the most alike first.

    Args:
        given: the name that there is not. names: those that there are.
    """
    every = by_likeness(given, names)
    if not every:
        return ""
    close = difflib.get_close_matches(given.lower(), [every[0].lower()], n=1)
    hint = f"; did you mean '{every[0]}'?" if close else ""
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return f"{hint} (there are: {', '.join(every[:SHOWN])}{more})"


def by_likeness(given: str, names: Iterable[str]) -> list[str]:
    """The names, the most alike first; those that are equally alike in their order."""

    def likeness(name: str) -> float:
        return difflib.SequenceMatcher(None, given.lower(), name.lower()).ratio()

    return sorted(dict.fromkeys(names), key=likeness, reverse=True)
