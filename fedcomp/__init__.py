"""fedcomp: communication-efficient federated learning, accuracy against true bits."""

import sys
from typing import TYPE_CHECKING, Any

from fedcomp.core.version import __version__

if sys.platform == "win32":
    raise ImportError("fedcomp needs the signals and file locks of Linux: on Windows, run it in WSL")

if TYPE_CHECKING:
    from fedcomp.api import Run, compose, figure, load_runs, report, run

__all__ = ["Run", "__version__", "compose", "figure", "load_runs", "report", "run"]


def __getattr__(name: str) -> Any:
    """Load `fedcomp.api` when a name of it is first used: a part of fedcomp can be imported without the rest."""
    if name not in __all__:
        raise AttributeError(f"module 'fedcomp' has no attribute {name!r}")
    from fedcomp import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
