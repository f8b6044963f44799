"""Values on the command line that Hydra cannot read without quotes of its own: `label=日本語`, `label=k=1`.

Such a value has one meaning alone, the text itself, so it is given the quotes. What Hydra reads stays as it is.
"""

from __future__ import annotations

import re
import shlex

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

TOKEN = re.compile(r"""'(?:\\.|[^'\\])*'(?=[,\]]|$) | "(?:\\.|[^"\\])*"(?=[,\]]|$) | [,\[\]] | [^,\[\]]+""", re.X)
"""A value's parts: text in quotes, what separates the entries of lists and of grids, and text without quotes."""
KNOWN = re.compile(r"[\w/\-\\+.$%*@?|:{}() ]*", re.ASCII)
"""Text that Hydra reads without quotes, or that means something to it."""
MEANING = re.compile(r"[$(){}]")
"""What may be an interpolation, a function or a mapping: such text gets no quotes."""


def readable(word: str) -> str:
    """`label=日本語` -> `label='日本語'`; the word itself if Hydra reads it, or if quotes do not help."""
    key, equals, value = word.partition("=")
    if not equals or _reads(word):
        return word
    parts = [_quoted(part) for part in TOKEN.findall(value)]
    candidate = f"{key}={''.join(parts)}"
    return candidate if "".join(TOKEN.findall(value)) == value and _reads(candidate) else word


def unreadable(word: str) -> str | None:
    """One line on an override that Hydra cannot read, with the quotes that it may need; None if it can."""
    key, equals, value = word.partition("=")
    if not equals or _reads(word):
        return None
    quoted = as_text(key, value)
    if quoted is None:
        return f"'{word}' cannot be read: '{key}' is no option's name"
    return f"'{word}' cannot be read: if its value is plain text, quote it, also for the shell: {quoted}"


def as_text(key: str, value: str) -> str | None:
    """What to type so that the value is plain text; None if the key is none."""
    quoted = _in_quotes(value) if set(value) & set('"\\') else f'"{value}"'
    candidate = f"{key}={quoted}"
    return shlex.quote(candidate) if _reads(candidate) else None


def _quoted(part: str) -> str:
    if part[0] in "'\",[]" or KNOWN.fullmatch(part) or MEANING.search(part):
        return part
    bare = part.strip()
    return part.replace(bare, _in_quotes(bare))


def _in_quotes(text: str) -> str:
    """Hydra's quotes: a quote within has a backslash before it, and so have those at the end."""
    body = re.sub(r"(\\*)'", lambda match: match[1] * 2 + r"\'", text)
    tail = re.search(r"\\*$", body)
    return f"'{body}{tail[0] if tail else ''}'"


def _reads(word: str) -> bool:
    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        return False
    return True
