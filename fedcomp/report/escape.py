"""Text that users wrote, such as labels, so that Markdown, spreadsheets and terminals show it as it is."""

from __future__ import annotations

import re

from fedcomp.display import figure

MARKUP = re.compile(r"[\\`*\[\]<>~|$]|(?<![^\W_])_|_(?![^\W_])")
"""What Markdown would interpret; underscores within words are plain."""
BLOCK = re.compile(r"^(#+|[-+]|\d+[.)])(?=\s|$)")
"""What would start a heading or a list where a line begins."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def one_line(text: str) -> str:
    """The text without line breaks and control characters, blanks in their place."""
    return "".join(character if character.isprintable() else " " for character in text)


def markdown(text: str) -> str:
    """Text in a table's cell or in a line. Math between dollars stays math, as GitHub and others set it."""
    text = one_line(text)
    if not figure.is_math(text):
        return _plain(text)
    parts = re.split(r"(?<!\\)\$", text)
    return "$".join(
        part.replace("|", r"\vert ").replace("<", r"\lt ") if number % 2 else _plain(part)
        for number, part in enumerate(parts)
    )


def markdown_line(text: str) -> str:
    """Text that is a line of its own, or an item of a list."""
    return BLOCK.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", markdown(text))


def csv(text: str) -> str:
    """Text in a cell of a CSV file, which a spreadsheet shall not take for a formula: an apostrophe goes before it."""
    return f"'{text}" if text.startswith(FORMULA) and not _is_number(text) else text


def _plain(text: str) -> str:
    return MARKUP.sub(lambda match: f"\\{match[0]}", text).replace("&", "&amp;")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
