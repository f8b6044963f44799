"""Adds to overrides what Hydra asks for and what can only be meant: quotes, and ++ before names of the user's own.

`label=日本語` and `label=k=1` can only mean their own text. `model.options.width=32` names an argument of the user's
class, which no config of fedcomp can list. An override that Hydra can read is left unchanged.
"""

from __future__ import annotations

import re
import shlex

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

TOKEN = re.compile(r"""'(?:\\.|[^'\\])*'(?=[,\]]|$) | "(?:\\.|[^"\\])*"(?=[,\]]|$) | [,\[\]] | [^,\[\]]+""", re.X)
"""The tokens of a value: quoted text; commas and brackets, which separate entries of lists and grids; other text."""
UNQUOTED = re.compile(r"[\w/\-\\+.$%*@?|:{}() ]*", re.ASCII)
"""Text that Hydra parses without quotes, or that has a meaning in its grammar."""
SYNTAX = re.compile(r"[$(){}]")
"""Characters of interpolations, functions and mappings: text with one of these gets no quotes."""

DOWNLINK = re.compile(r"downlink=(?!null\b)[a-z][\w/]*(,[a-z][\w/]*)*")
"""Choices of the downlink's compressor, which are given as those of a part of the same name are."""
OF_ANY_NAME = ("model.options.",)
"""Options below these have names of the user's own."""


def quote(override: str) -> str:
    """`label=日本語` -> `label='日本語'`; the override itself if Hydra can parse it, or if quotes do not help.

    `model.options.width=32` -> `++model.options.width=32`, which adds the name or replaces its value, and
    `downlink=sign` -> `compressor@downlink=sign`.
    """
    if DOWNLINK.fullmatch(override):
        return f"compressor@{override}"
    if override.startswith(OF_ANY_NAME):
        override = f"++{override}"
    key, equals, value = override.partition("=")
    if not equals or _parses(override):
        return override
    parts = [_quoted(part) for part in TOKEN.findall(value)]
    candidate = f"{key}={''.join(parts)}"
    return candidate if "".join(TOKEN.findall(value)) == value and _parses(candidate) else override


def quoting_error(override: str) -> str | None:
    """The error message for an override that Hydra cannot parse, with the missing quotes; None if it can."""
    key, equals, value = override.partition("=")
    if not equals or _parses(override):
        return None
    quoted = quote_text(key, value)
    if quoted is None:
        return f"'{override}' cannot be read: '{key}' is no option's name"
    return f"'{override}' cannot be read: if its value is plain text, quote it, also for the shell: {quoted}"


def quote_text(key: str, value: str) -> str | None:
    """The override as it is typed in a shell, with its value quoted as one text; None if the key is invalid."""
    quoted = _in_quotes(value) if set(value) & set('"\\') else f'"{value}"'
    candidate = f"{key}={quoted}"
    return shlex.quote(candidate) if _parses(candidate) else None


def _quoted(part: str) -> str:
    if part[0] in "'\",[]" or UNQUOTED.fullmatch(part) or SYNTAX.search(part):
        return part
    bare = part.strip()
    return part.replace(bare, _in_quotes(bare))


def _in_quotes(text: str) -> str:
    """The text in Hydra's quotes, with a backslash before each quote and each backslash at the end."""
    body = re.sub(r"(\\*)'", lambda match: match[1] * 2 + r"\'", text)
    tail = re.search(r"\\*$", body)
    return f"'{body}{tail[0] if tail else ''}'"


def _parses(override: str) -> bool:
    try:
        OverridesParser.create().parse_override(override)
    except HydraException:
        return False
    return True
