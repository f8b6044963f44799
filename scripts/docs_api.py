"""A hook of MkDocs: a page of the API reference for each folder of fedcomp/, from its docstrings."""

from __future__ import annotations

import ast
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PACKAGE = Path(__file__).resolve().parents[1] / "fedcomp"
ROOMS = sorted({path.parent.name for path in PACKAGE.glob("*/*.py")})


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages last in the navigation."""
    config.nav = [*(config.nav or []), {"API": [{room: f"api/{room}.md"} for room in ROOMS]}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Generate the pages, which exist only in the built site."""
    for room in ROOMS:
        text = "\n".join([f"# {room}\n", *map(_module, sorted((PACKAGE / room).rglob("*.py")))])
        files.append(File.generated(config, f"api/{room}.md", content=text))
    return files


def _module(path: Path) -> str:
    """A module with its definitions; a package with its docstring only, since its re-exports are defined elsewhere."""
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    if path.name != "__init__.py":
        return f"::: {name}\n"
    package = name.removesuffix(".__init__")
    return (
        f"::: {package}\n    options:\n      members: false\n" if ast.get_docstring(ast.parse(path.read_text())) else ""
    )
