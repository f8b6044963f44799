"""An experiment of a paper: the commands that run it, and what of its runs is kept."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import FrameType

from fedcomp.records.metrics_file import Line
from fedcomp.records.reader import RecordedRun
from scripts.reproduce.clocks import ClockName, with_times

Command = list[str]
"""Overrides of `fedcomp`."""
_running: set[subprocess.Popen] = set()
"""What `run` has started and waits for."""


class Ended(IntEnum):
    """What became of a grid: all its runs are finished, some failed, or it was stopped before its end."""

    FINISHED = 0
    FAILED = 1
    STOPPED = 2


@dataclass(frozen=True)
class Cut:
    """Less than a round of the paper.

    Attributes:
        options: overrides, the last one without its value: how many local steps.
        gradients: of samples, which a whole round computes.
    """

    options: str
    gradients: int

    def steps(self, number: int) -> list[str]:
        """The overrides, with so many local steps."""
        return f"{self.options}{number}".split()


@dataclass(frozen=True)
class Experiment:
    """Runs of one name.

    Attributes:
        name: of the runs' folder in outputs/, and of the records.
        commands: overrides of `fedcomp`, each a command, in the order in which they are run.
        small: further overrides at SCALE=small; None: left out there.
        metrics: of each evaluation, what the records keep beside `round`.
        options: dotted config keys that tell runs of one label apart.
        pictures: {picture of `fedcomp-report`, of finished runs: its file beside the page}.
        curves: {metric: the file of its picture against bits and rounds}, drawn from the records.
        draw: draws what a report does not have, from the folder of the runs into that of the page.
        before: what its runs read, and the arguments of Python that make it where it is missing.
        cut: on a CPU, a network whose round takes long: a trial has fewer clients and steps.
        clocks: of runs that record their traffic; by each of them an evaluation has a time.
    """

    name: str
    commands: Sequence[str]
    small: str | None
    metrics: Sequence[str]
    options: Sequence[str] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, str] = field(default_factory=dict)
    draw: Callable[[Path, Path], None] | None = None
    before: tuple[Path, str] | None = None
    cut: Cut | None = None
    clocks: Sequence[ClockName] = ()

    def lines_of(self, recorded: RecordedRun) -> Sequence[Line]:
        """A run's evaluations, of which the records keep `metrics`; of a finished run with their times."""
        return with_times(recorded, self.clocks)

    @property
    def shown(self) -> str:
        """The commands as a page shows them, at the paper's scale: fewer, which together start the same runs."""
        return ", ".join(f"`fedcomp {command}`" for command in joined(self.commands))

    def overrides(self, scale: str) -> Iterable[Command]:
        """The commands at `scale`, which is small or paper."""
        if scale == "paper":
            return [command.split() for command in self.commands]
        if self.small is None:
            return []
        more = [f"name={self.folder(scale)}", *self.small.split()]
        changed = {one.split("=")[0] for one in more}
        kept = [[one for one in command.split() if one.split("=")[0] not in changed] for command in self.commands]
        return [list(one) for one in dict.fromkeys((*command, *more) for command in kept)]

    def sequences(self, scale: str) -> list[Iterator[Command]]:
        """The same commands in sequences that need not wait for each other."""
        return [iter(self.overrides(scale))]

    def planned(self) -> Iterable[Command]:
        """The commands at the paper's scale as far as they are known before any has run."""
        return self.overrides("paper")

    def prepare(self) -> None:
        """Make what its runs read, if that is missing."""
        if self.before is not None and not self.before[0].expanduser().exists():
            print(f"python {self.before[1]}", flush=True)
            subprocess.run([sys.executable, *self.before[1].split()], check=False)

    def folder(self, scale: str) -> str:
        """The folder of its runs in outputs/."""
        return self.name if scale == "paper" else f"{self.name}_small"


def joined(commands: Sequence[str]) -> list[str]:
    """Commands of as many runs: two that differ in one option's values are one command with the values of both."""
    found: list[str] = []
    for command in commands:
        for index, other in enumerate(found):
            if (both := _with_both(other.split(), command.split())) is not None:
                found[index] = both
                break
        else:
            found.append(command)
    return found if len(found) == len(commands) else joined(found)


def _with_both(one: list[str], other: list[str]) -> str | None:
    apart = [index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b]
    if len(one) != len(other) or len(apart) > 1:
        return None
    if not apart:
        return " ".join(one)
    (index,) = apart
    (key, _, values), (same, _, more) = one[index].partition("="), other[index].partition("=")
    if key != same or "[" in values + more:
        return None
    union = dict.fromkeys((*values.split(","), *more.split(",")))
    return " ".join((*one[:index], f"{key}={','.join(union)}", *one[index + 1 :]))


def run(overrides: Sequence[str], deadline: float) -> Ended:
    """Run one grid until it ends or the deadline, a time of `time.monotonic`, has come.

    Returns:
        STOPPED also where a signal ended it. Runs that are stopped resume when the same command is given again.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        return Ended.STOPPED
    print(f"fedcomp {' '.join(overrides)}", flush=True)
    process = subprocess.Popen([sys.executable, "-m", "fedcomp", *overrides])
    _running.add(process)
    try:
        status = process.wait(left)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()
        return Ended.STOPPED
    except KeyboardInterrupt:
        process.wait()  # it finishes its round and writes its state
        raise
    finally:
        _running.discard(process)
    if status < 0 or status > 128:
        return Ended.STOPPED
    return Ended.FAILED if status else Ended.FINISHED


def pass_on_signals() -> None:
    """From now on a signal to this process alone, Ctrl-C's or that of `kill`, stops what `run` has started too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    for process in tuple(_running):
        process.terminate()  # ignored where Ctrl-C has reached it, as it does the whole group
    raise KeyboardInterrupt


def report(folder: Path, out: Path) -> None:
    """Tables and pictures of the runs in a folder; nothing where no run is finished."""
    arguments = [str(folder), "--out", str(out), "--every-picture"]
    subprocess.run([sys.executable, "-m", "fedcomp.reporting", *arguments], check=False)
