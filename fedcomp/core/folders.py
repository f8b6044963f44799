"""Where the package, its configs and its cache lie, and what a part is called there."""

import os
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
CONF = PACKAGE / "conf" if (PACKAGE / "conf").is_dir() else PACKAGE.parent / "conf"
"""In the package of an installed wheel, beside it in the repository."""


def cache_folder() -> Path:
    """What fedcomp found out and keeps: $XDG_CACHE_HOME/fedcomp (default ~/.cache). It may be impossible to write to.

    Without a home folder it is a path that cannot exist.
    """
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root if os.path.isabs(root) else os.devnull, "fedcomp")


def part_name(target: Any) -> str:
    """What a part is called in conf/: `fedcomp.compressor.sparsifiers.topk.TopK` -> topk, `….cnn.lenet5` -> lenet5."""
    path = str(target).split(".")
    if path[0] == "fedcomp" and path[-1].islower() and path[-1] != "load":
        return path[-1]  # a function that makes the part has the config's name
    return path[-2] if len(path) > 1 else path[0]


def name_of(part: object) -> str:
    """What a part that is built is called in conf/, by its class."""
    return part_name(f"{type(part).__module__}.{type(part).__qualname__}")
