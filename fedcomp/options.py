"""What a config node's options may be by the signature of what it builds: a word is neither a switch nor a number.

Options of parts are not typed: `off`, `no` and `abc` come as words, and any word is true to Python.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig

NUMBERS = {"int": "a whole number", "float": "a number"}


def check_flags(node: Any) -> None:
    """Raise ValueError unless each option that is a switch, here or in a part within, is true or false."""
    for name, value, kinds in _options(node):
        if kinds - {"None"} == {"bool"} and not isinstance(value, bool):
            raise ValueError(f"{name}={value} must be true or false{_or_null(kinds)}")


def word_for_number(node: Any) -> str | None:
    """One line about an option that must be a number, here or in a part within, and is none; None: there is none."""
    for name, value, kinds in _options(node):
        wanted = kinds - {"None"}
        if wanted and wanted <= NUMBERS.keys() and not isinstance(value, (int, float)):
            return f"{name}={value} must be {NUMBERS['float' if 'float' in wanted else 'int']}{_or_null(kinds)}"
    return None


def _or_null(kinds: set[str]) -> str:
    return ", or null" if "None" in kinds else ""


def _options(node: Any) -> Iterator[tuple[str, Any, set[str]]]:
    """(name, value, kinds) of every option that is not null where it may be: its full name, and types it may have."""
    if not isinstance(node, DictConfig) or "_target_" not in node:
        return
    kinds = _kinds(str(node["_target_"]))
    for key, value in node.items():
        yield from _options(value)
        if key in kinds and not (value is None and "None" in kinds[str(key)]):
            yield str(node._get_full_key(key)), value, kinds[str(key)]


def _kinds(target: str) -> dict[str, set[str]]:
    """Of each parameter the names of the types that it is declared with; {} if nothing is to be found out."""
    try:
        parameters = inspect.signature(pkgutil.resolve_name(target)).parameters.values()
    except Exception:  # whatever a module of a user's own raises: who builds the part says what is wrong with it
        return {}
    return {one.name: _declared(one) for one in parameters}


def _declared(parameter: inspect.Parameter) -> set[str]:
    kind = parameter.annotation
    if kind is parameter.empty:
        return {"bool"} if isinstance(parameter.default, bool) else set()
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    return {word.strip() for word in text.split("|")}
