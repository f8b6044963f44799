"""The contract of a launcher, and the simplest one: it gets the runs of a grid, waits for each, returns their outcomes.

A run of a grid is a command line, so it starts, resumes, fails and is killed exactly like a run by hand. A launcher
knows nothing of Hydra; `hydra_plugins/fedcomp_grid` composes the runs and hands them over.
"""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from fedcomp.records.atomic_write import explained
from fedcomp.records.status import read_status
from fedcomp.runtime.device_name import device_name
from fedcomp.runtime.signals import SIGNALS


class RunFailed(Exception):
    """A run of a grid failed, with one line that says why; the rest of the grid continues."""


@dataclass(frozen=True)
class GridRun:
    """One run of a grid.

    Attributes:
        number: its place in the grid, from 0.
        overrides: what sets it apart, as on the command line: `compressor=topk`, `seed=3`.
        command: program and arguments of a process that runs it.
        folder: of the run. log: file for the output of its process.
        quiet: only its error is shown.
    """

    number: int
    overrides: tuple[str, ...]
    command: tuple[str, ...]
    folder: Path
    log: Path
    quiet: bool = False

    @property
    def description(self) -> str:
        """The overrides in one line."""
        return " ".join(self.overrides) or "defaults"

    @property
    def device(self) -> str:
        """What its command says: cpu, cuda, cuda:1."""
        return next(word.removeprefix("device=") for word in reversed(self.command) if word.startswith("device="))


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended: its `error` is None if it finished, else one line; `interrupted`: by a signal."""

    run: GridRun
    error: str | None = None
    interrupted: bool = False


RunHere = Callable[[GridRun], str | None]
"""Runs one run in this process; returns its error line, None if it finished."""


class Launcher(Protocol):
    """Executes runs and waits for them. A run that fails or is killed stops no other."""

    @property
    def processes_per_run(self) -> int:
        """Processes that one run has."""

    def place(self, device: str, threads: int | None) -> Mapping[str, str | int]:
        """The settings that a run gets from this launcher: `device` (what `auto` means), `threads` (its fraction).

        Raises ValueError: this launcher cannot work here; what to do.
        """

    def launch(self, runs: Sequence[GridRun], grid: Path, here: RunHere) -> list[RunOutcome]:
        """Run all and wait; one outcome each, in their order. `grid`: a folder for the grid's own files."""


@dataclass(frozen=True)
class Local:
    """The quickest for small runs. A crash of the interpreter ends the grid; the same command resumes it."""

    processes_per_run: ClassVar[int] = 1

    def place(self, device: str, threads: int | None) -> Mapping[str, str | int]:
        """The device that a run here would pick."""
        return {"device": device_name(device)}

    def launch(self, runs: Sequence[GridRun], grid: Path, here: RunHere) -> list[RunOutcome]:
        """Run them in their order."""
        return [RunOutcome(run, here(run)) for run in runs]


def outcome(run: GridRun, code: int | None) -> RunOutcome:
    """What became of a run whose process ended with `code` (negative: minus a signal; None: unknown)."""
    try:
        status = read_status(run.folder)
    except ValueError as error:
        return RunOutcome(run, str(error))
    if status is not None and status.state == "finished" and not code:
        return RunOutcome(run)
    if status is not None and status.state in ("failed", "interrupted") and status.error:
        return RunOutcome(run, status.error, status.state == "interrupted")
    if code is not None and (-code in SIGNALS or code - 128 in SIGNALS):
        return RunOutcome(run, "interrupted before it could save a state", interrupted=True)
    if code is not None and code < 0:
        return RunOutcome(run, f"killed by {signal.Signals(-code).name}; the same command resumes it")
    said = (last_line(run.log) or "").removeprefix("fedcomp: ").removeprefix("error: ")
    return RunOutcome(run, said or _unwritable(run.log) or "it ended without a message; the same command resumes it")


def _unwritable(log: Path) -> str | None:
    """One line if nothing can be written to a log, as on a full disk, which also takes what the run says of it."""
    try:
        with explained(log), log.open("a") as file:
            file.write("\n")
    except ValueError as error:
        return str(error)
    return None


def last_line(log: Path) -> str | None:
    """The last line of a log that is not empty; None if there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((line.strip() for line in reversed(lines) if line.strip()), None)
