"""Names are one line of text: they become folders, headings, table cells and legends."""

from __future__ import annotations

import unicodedata

REFUSED = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of control characters, halves of characters, and separators of lines and paragraphs."""


def check_one_line(what: str, text: str) -> None:
    """Refuse text with a newline, a tab or another control character; `what` opens the error and says what it is.

    Raises:
        ValueError: naming the first such character.
    """
    for character in text:
        if unicodedata.category(character) in REFUSED:
            raise ValueError(
                f"{what} {text!r} contains {character!r}, but must be one line of text without control characters"
            )
