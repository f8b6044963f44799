"""Fingerprints of the user's own code: the modules that a config names by `_target_`, and the modules they import.

Own modules belong neither to fedcomp nor to Python nor to an installed package (these have versions). The files are
parsed and not executed, so an import by `importlib` at run time is not found.
"""

import ast
import functools
import importlib.metadata
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedcomp.provenance.files import digest
from fedcomp.records.provenance import Fingerprint
from fedcomp.records.run_folder import WITHOUT_EFFECT

OWN_MODULE = "fedcomp.model.networks.module.own"
"""What `model=module` builds: its option `path` names the user's class."""


def code_files(config: Mapping[str, Any]) -> dict[str, Path]:
    """{module: file} of the user's own code that the run of this resolved config uses."""
    files: dict[str, Path] = {}
    pending = list(_targets({key: value for key, value in config.items() if key not in WITHOUT_EFFECT}))
    seen = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        for module, path in _modules(name):
            if module not in files:
                files[module] = path
                pending += _imports(module, path)
    return files


def code_parts(config: Mapping[str, Any]) -> dict[str, Fingerprint]:
    """Fingerprints of `code_files`, of their content when this process first read it, which is what it runs.

    Raises ValueError: a file cannot be read.
    """
    out = {}
    for module, path in sorted(code_files(config).items()):
        content = source(path)
        out[_file_name(module, path)] = Fingerprint(digest(content), 1, len(content))
    return out


@functools.cache
def source(path: Path) -> bytes:
    """A file's content at the first call; like an import, this process does not see later edits."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error


def _file_name(module: str, path: Path) -> str:
    parts = module.split(".")
    return "/".join([*parts, path.name] if path.name == "__init__.py" else [*parts[:-1], path.name])


def _targets(node: Any) -> Iterator[str]:
    """Every `_target_` in a config, and the path of `model=module`."""
    if isinstance(node, Mapping):
        named = ("_target_", "path") if node.get("_target_") == OWN_MODULE else ("_target_",)
        for key, value in node.items():
            if key in named and isinstance(value, str):
                yield value
            else:
                yield from _targets(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _targets(value)


def _modules(dotted: str) -> Iterator[tuple[str, Path]]:
    """The own modules that importing a dotted name executes: the packages' `__init__` files and the module itself."""
    top, *inner = dotted.split(".")
    for folder, file in _own(top):
        if file is not None:
            yield top, file
        if folder is None:
            continue
        name = top
        for word in inner:
            name, folder = f"{name}.{word}", folder / word
            plain, package = folder.with_suffix(".py"), folder / "__init__.py"
            if package.is_file():
                yield name, package
            elif plain.is_file():
                yield name, plain
                break
            elif not folder.is_dir():
                break


def _own(top: str) -> tuple[tuple[Path | None, Path | None], ...]:
    """(folder of a package or None, its file or None) of a top-level module that is the user's own; () if it is not."""
    if not top or top == "fedcomp" or top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return ()
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return ()
    if spec is None:
        return ()
    file = Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if any(_has_version(top, path) for path in [*([file] if file else []), *folders]):
        return ()
    return tuple((folder, file) for folder in folders) or ((None, file),)


def _has_version(top: str, path: Path) -> bool:
    """Whether `path` belongs to an installed distribution."""
    named = {"site-packages", "dist-packages"} & set(path.parts)
    if not named and not any(path.is_relative_to(folder) for folder in _folders_of_packages(tuple(sys.path))):
        return False
    try:
        importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        return top in _installed()
    return True


@functools.cache
def _folders_of_packages(import_path: tuple[str, ...]) -> tuple[Path, ...]:
    """Python's own folders, and those of the import path into which something is installed, whatever their names."""
    python = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    found = {folder for folder in import_path if any(Path(folder or ".").glob("*.dist-info"))}
    return tuple(Path(folder).absolute() for folder in python | found)


@functools.cache
def _installed() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _imports(module: str, path: Path) -> list[str]:
    """Dotted names that a file imports; `from a import b` gives `a.b`, which may be a module."""
    try:
        tree = ast.parse(source(path))
    except (SyntaxError, ValueError):
        return []  # importing it reports the error
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [f"{base}.{alias.name}" for alias in node.names]
    return names
