"""The error message for a `_target_` that cannot be found: the missing module or name, and the ones that exist."""

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

from fedcomp.core.folders import PACKAGE
from fedcomp.core.validate import suggest


def unresolved(node: Any) -> str | None:
    """The error message for the first `_target_` of a node, or of a part inside it, that cannot be found, else None.

    A module that exists but raises during its import is not reported here: its own error says more.
    """
    for key, target in _targets(node):
        line = _missing(key, target)
        if line is not None:
            return line
    return None


def _targets(node: Any) -> Iterator[tuple[str, str]]:
    """(full key, target) of a node and of the parts inside it."""
    if not isinstance(node, DictConfig):
        return
    if "_target_" in node:
        yield str(node._get_full_key("_target_")), str(node["_target_"])
    for value in node.values():
        yield from _targets(value)


def _missing(key: str, target: str) -> str | None:
    names = target.split(".")
    parent: Any = None
    for number, name in enumerate(names):
        path = ".".join(names[: number + 1])
        if parent is None or isinstance(parent, ModuleType):
            try:
                parent = getattr(parent, name) if hasattr(parent, name) else importlib.import_module(path)
                continue
            except ModuleNotFoundError as error:
                if error.name != path:
                    return None
            except Exception:
                return None
        elif hasattr(parent, name):
            parent = getattr(parent, name)
            continue
        return f"{key}={target}: {_not_found(parent, name)}{_new_module(target)}"
    return None


def _new_module(target: str) -> str:
    """The module that now has this name of fedcomp's, if an earlier version had it elsewhere."""
    first, *_, name = target.split(".")
    if first != PACKAGE.name or not name.isidentifier():
        return ""
    defined = re.compile(rf"^(class|def) {name}\b", flags=re.MULTILINE)
    for path in sorted(PACKAGE.rglob("*.py")):
        if defined.search(path.read_text(encoding="utf-8")):
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            return f"; {name} lies in {module}"
    return ""


def _not_found(parent: Any, name: str) -> str:
    """What is missing in `parent` (None: a top-level module), and what exists there."""
    if parent is None:
        return (
            f"there is no module '{name}'{suggest(name, _own_modules())}; a module of your own lies in the folder that "
            "--config-dir names, or on PYTHONPATH"
        )
    parent_name = getattr(parent, "__name__", str(parent))
    if not isinstance(parent, ModuleType):
        return f"{parent_name} has no '{name}'"
    defined = [
        key
        for key, value in vars(parent).items()
        if not key.startswith("_") and callable(value) and inspect.getmodule(value) is parent
    ]
    submodules = [module.name for module in pkgutil.iter_modules(getattr(parent, "__path__", ()))]
    file = f" ({parent.__file__})" if getattr(parent, "__file__", None) else ""
    own = [path for one in sys.path if (path := Path(one or ".") / f"{parent_name}.py").is_file()]
    if own and file and not any(path.samefile(str(parent.__file__)) for path in own[:1]):
        return f"{own[0]} has the name of a module that is loaded already{file}: call it otherwise, my_{parent_name}.py"
    return f"module {parent_name}{file} has no '{name}'{suggest(name, [*defined, *submodules])}"


def _own_modules() -> list[str]:
    """Modules on Python's search path, without installed packages and without this project."""
    paths = [Path(path or ".") for path in sys.path if "lib" not in Path(path).parts]
    folders = [str(path) for path in paths if path.is_dir() and not (path / "fedcomp").is_dir()]
    return sorted({module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")})
