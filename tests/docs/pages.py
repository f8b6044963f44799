"""The README and the pages of docs/, and the blocks of code in them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in FILES}
"""Text of each page, by its path from the repository's root."""


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, text) of each block of code in a page."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)


def block(page: str, language: str, containing: str) -> str:
    """The one block of a page in this language that has this text."""
    (found,) = [text for name, text in blocks(PAGES[page]) if name == language and containing in text]
    return found


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
