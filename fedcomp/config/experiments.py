"""What `fedcomp experiment=` shows: every experiment with its first line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedcomp.config.comments import about

PARTS = ("method", "setting", "data", "split", "case")
"""Folders of what experiments are made of."""


def experiments(folders: Iterable[Path]) -> dict[str, str]:
    """{name: the first comment of its YAML}, by name, over the `experiment` folders of these config folders.

    Folders called as in PARTS hold what the experiments beside them compare, and what they share.
    """
    found = {}
    for folder in folders:
        root = folder / "experiment"
        for path in (path for path in root.rglob("*.yaml") if path.parent.name not in PARTS):
            found[path.relative_to(root).with_suffix("").as_posix()] = about(path)
    return dict(sorted(found.items()))


def listing(folders: Iterable[Path]) -> str:
    """The experiments, one a line, for `fedcomp experiment=<name>`."""
    lines = experiments(folders)
    width = max(map(len, lines), default=0)
    return "\n".join(f"{name:<{width}}  {words}".rstrip() for name, words in lines.items())
