"""Checks option values against the constructor's annotations (bool, int, float).

Options of parts are not typed: `off`, `no` and `abc` come as words, and any word is true to Python.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig

NUMBERS = {"int": "a whole number", "float": "a number"}
LISTS = ("Sequence", "list", "tuple")
LISTED: dict[str, tuple[Any, str, str]] = {
    "int": (int, " of whole numbers", "[32,16]"),
    "float": ((int, float), " of numbers", "[0.5,1]"),
}
"""Of a list's entries their types, what they are called, and an example."""


def check_flags(node: Any) -> None:
    """Raise ValueError unless each option that is a switch, here or in a part within, is true or false."""
    for name, value, kinds in _options(node):
        if kinds - {"None"} == {"bool"} and not isinstance(value, bool):
            raise ValueError(f"{name}={value} must be true or false{_or_null(kinds)}")


def check_kinds(node: Any) -> None:
    """Raise ValueError for a string of digits where a number belongs, and for anything but a list where that does.

    Of lists this looks at the entries too.
    """
    for name, value, kinds in _options(node):
        wanted = kinds - {"None"}
        if wanted and wanted <= NUMBERS.keys() and isinstance(value, str) and _is_number(bare := value.strip("'\" ")):
            number = NUMBERS["float" if "float" in wanted else "int"]
            raise ValueError(
                f"{name}={value!r} is a string, but must be {number}{_or_null(kinds)}: write {name}={bare}, without "
                "quotes"
            )
        entry = _entry(wanted)
        if entry is None:
            continue
        types, words, example = LISTED.get(entry, (object, "", "[a,b]"))
        entries = list(value) if isinstance(value, (ListConfig, list, tuple)) else None
        if entries is None and isinstance(value, types):
            example = f"[{value}]"
        if entries is None or any(isinstance(one, bool) or not isinstance(one, types) for one in entries):
            raise ValueError(f"{name}={value} must be a list{words}{_or_null(kinds)}, such as {name}={example}")


def _entry(kinds: set[str]) -> str | None:
    """The type of the entries, if the only kind is that of a list; None otherwise."""
    if len(kinds) != 1:
        return None
    name, _, entry = next(iter(kinds)).partition("[")
    return entry.rstrip("]").split(",")[0].strip() if name in LISTS else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
