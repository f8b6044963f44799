"""A `_target_` that names nothing: the module or the name that is missing, and those that are there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from omegaconf import DictConfig

from fedcomp.config.defaults import PACKAGE
from fedcomp.core.validate import suggest


def unresolved(node: Any) -> str | None:
    """One line about the first `_target_`, here or in a part within, that names nothing; None: all name something.

    A module that is there but cannot be imported is none of these: its own error says more.
    """
    for key, target in _targets(node):
        line = _missing(key, target)
        if line is not None:
            return line
    return None


def _targets(node: Any) -> Iterator[tuple[str, str]]:
    """(full key, target) of a node and the parts within."""
    if not isinstance(node, DictConfig):
        return
    if "_target_" in node:
        yield str(node._get_full_key("_target_")), str(node["_target_"])
    for value in node.values():
        yield from _targets(value)


def _missing(key: str, target: str) -> str | None:
    words = target.split(".")
    found: Any = None
    for number, word in enumerate(words):
        name = ".".join(words[: number + 1])
        if found is None or isinstance(found, ModuleType):
            try:
                found = getattr(found, word) if hasattr(found, word) else importlib.import_module(name)
                continue
            except ModuleNotFoundError as error:
                if error.name != name:
                    return None
            except Exception:
                return None
        elif hasattr(found, word):
            found = getattr(found, word)
            continue
        return f"{key}={target}: {_absent(found, word)}{_elsewhere(target)}"
    return None


def _elsewhere(target: str) -> str:
    """Where a name of fedcomp's lies now, if an earlier version had it in another module."""
    first, *_, name = target.split(".")
    if first != PACKAGE.name or not name.isidentifier():
        return ""
    defined = re.compile(rf"^(class|def) {name}\b", flags=re.MULTILINE)
    for path in sorted(PACKAGE.rglob("*.py")):
        if defined.search(path.read_text()):
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            return f"; {name} lies in {module}"
    return ""


def _absent(where: Any, word: str) -> str:
    """What is missing, and what there is."""
    if where is None:
        return (
            f"there is no module '{word}'{suggest(word, _own_modules())}; a module of your own lies in the folder that "
            "--config-dir names, or on PYTHONPATH"
        )
    name = getattr(where, "__name__", str(where))
    if not isinstance(where, ModuleType):
        return f"{name} has no '{word}'"
    own = [
        name
        for name, value in vars(where).items()
        if not name.startswith("_") and callable(value) and inspect.getmodule(value) is where
    ]
    within = [module.name for module in pkgutil.iter_modules(getattr(where, "__path__", ()))]
    file = f" ({where.__file__})" if getattr(where, "__file__", None) else ""
    return f"module {name}{file} has no '{word}'{suggest(word, [*own, *within])}"


def _own_modules() -> list[str]:
    """Modules in the folders that Python looks through, but for what is installed, and for this project."""
    paths = [Path(path or ".") for path in sys.path if "lib" not in Path(path).parts]
    folders = [str(path) for path in paths if path.is_dir() and not (path / "fedcomp").is_dir()]
    return sorted({module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")})
