"""MkDocs' hook: a page of the API reference for each room of fedcomp/, made from its docstrings."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PACKAGE = Path(__file__).resolve().parents[1] / "fedcomp"
ROOMS = sorted({path.parent.name for path in PACKAGE.glob("*/*.py")})


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The pages come last in the navigation."""
    config.nav = [*(config.nav or []), {"API": [{room: f"api/{room}.md"} for room in ROOMS]}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """They exist only in the built site."""
    for room in ROOMS:
        text = f"# fedcomp.{room}\n\n::: fedcomp.{room}\n"
        files.append(File.generated(config, f"api/{room}.md", content=text))
    return files
