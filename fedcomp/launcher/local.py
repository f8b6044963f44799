"""One run after another, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcomp.launcher.contract import GridRun, RunHere, RunOutcome


@dataclass(frozen=True)
class Local:
    """The quickest for small runs. A crash of the interpreter ends the grid; the same command resumes it."""

    def place(self, device: str, threads: int | None) -> Mapping[str, str | int]:
        """The device that a run here would pick."""
        return {"device": local_device(device)}

    def launch(self, runs: Sequence[GridRun], grid: Path, here: RunHere) -> list[RunOutcome]:
        """Run them in their order."""
        return [RunOutcome(run, here(run)) for run in runs]


def local_device(name: str) -> str:
    """What `device=auto` means on this machine. Raises ValueError: no such device."""
    from fedcomp.config.factory import pick_device  # torch takes seconds to import

    return str(pick_device(name))
