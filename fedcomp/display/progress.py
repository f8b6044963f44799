"""How a run shows itself while it lasts: a bar on a terminal, a few plain lines elsewhere, nothing when quiet.

`advance` is called every round, also when a round takes 0.8 ms: it reads the clock and returns, unless a redraw is
due. Nothing here runs in a thread, so a slow screen or Ctrl-C cannot leave one behind. A screen that cannot be written
to (the reader of a pipe has died, a disk is full) is given up, and the run goes on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import perf_counter
from types import TracebackType
from typing import Literal, Protocol, TextIO, get_args

from fedcomp.display import units
from fedcomp.display.broken_pipe import forget
from fedcomp.display.main_metric import in_words, main_metric
from fedcomp.records.metrics_file import Metrics

Verbosity = Literal["quiet", "normal", "verbose"]

LINE_SECONDS = 5.0
LINE_SECONDS_EVALUATED = 1.0


class Screen(Protocol):
    """Where progress is drawn. `Bar` (display/bar.py) for terminals, `Lines` below for anything else."""

    seconds: float
    """Least time between two draws that no evaluation asked for."""
    seconds_evaluated: float
    """Least time between two draws after evaluations."""

    def start(self, rounds: int) -> None: ...
    def draw(self, round: int, rounds: int, metrics: str, seconds_left: float | None) -> None: ...
    def note(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Lines:
    """Plain lines for log files and notebooks. `stream`: where they go."""

    seconds = LINE_SECONDS
    seconds_evaluated = LINE_SECONDS_EVALUATED

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""

    def start(self, rounds: int) -> None:
        """Nothing to prepare."""

    def draw(self, round: int, rounds: int, metrics: str, seconds_left: float | None) -> None:
        """One line; an evaluation stands in one line only, rounds after it are not its rounds."""
        left = f"{units.duration(seconds_left)} left" if seconds_left else ""
        fresh = metrics if metrics != self._shown else ""
        self._shown = metrics
        self.note("  ".join(part for part in (f"round {round:>{len(str(rounds))}}/{rounds}", fresh, left) if part))

    def note(self, text: str) -> None:
        """One line."""
        print(text, file=self._stream, flush=True)

    def stop(self) -> None:
        """Nothing to restore."""


class Progress:
    """Progress of one run; a context manager, so that Ctrl-C restores the terminal.

    Args:
        verbosity: quiet shows nothing; normal a bar, or a line at evaluations (at most one a second) and every five
            seconds without one; verbose in addition a line for each evaluation.
        stream: where to show it; None for the standard error stream.

    Raises:
        ValueError: an unknown verbosity.
    """

    def __init__(self, verbosity: str = "normal", stream: TextIO | None = None) -> None:
        if verbosity not in get_args(Verbosity):
            raise ValueError(f"verbosity is {verbosity!r}, allowed are {', '.join(get_args(Verbosity))}")
        self._verbose = verbosity == "verbose"
        self._stream = stream or sys.stderr
        self._screen = None if verbosity == "quiet" else _screen(self._stream)
        self._metrics = ""
        self._round = self._first_round = self._rounds = 0
        self._started = 0.0
        self._due = self._due_evaluated = float("inf")
        self._pending = False

    def start(self, round: int, rounds: int) -> None:
        """Begin at `round` (0, or the checkpoint's) of `rounds`; the time left follows this session's speed."""
        self._round = self._first_round = round
        self._rounds = rounds
        self._started = perf_counter()
        if self._screen is not None:
            self._due = self._started + self._screen.seconds
            self._due_evaluated = self._started
        self._show(lambda screen: screen.start(rounds))

    def advance(self, round: int) -> None:
        """`round` rounds are complete. Costs well under a microsecond unless a redraw is due."""
        self._round = round
        if perf_counter() >= self._due:
            self._draw()

    def evaluated(self, record: Metrics) -> None:
        """Show an evaluation: its main metric and bits so far. The first and the last are always shown."""
        if self._screen is None:
            return
        self._metrics = describe(record)
        self._round = int(record["round"])
        self._pending = True
        now = perf_counter()
        if self._verbose or self._round >= self._rounds or now >= self._due_evaluated:
            self._due_evaluated = now + self._screen.seconds_evaluated
            if self._verbose and not isinstance(self._screen, Lines):
                self.note(f"round {self._round}  {self._metrics}")
            self._draw()

    def note(self, text: str) -> None:
        """One line for the user, above the bar; nothing when quiet."""
        self._show(lambda screen: screen.note(text))

    def stop(self) -> None:
        """Show what is still unshown and give the terminal back. May be called twice, or before `start`."""
        if self._pending:
            self._draw()
        self._due = self._due_evaluated = float("inf")
        self._show(lambda screen: screen.stop())

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _draw(self) -> None:
        now = perf_counter()
        self._pending = False
        if self._screen is not None:
            self._due = now + self._screen.seconds
        self._show(lambda screen: screen.draw(self._round, self._rounds, self._metrics, self._seconds_left(now)))

    def _show(self, what: Callable[[Screen], None]) -> None:
        """Do `what` on the screen, if there is one still."""
        if self._screen is None:
            return
        try:
            what(self._screen)
        except OSError:
            self._screen, self._due = None, float("inf")
            forget(self._stream)

    def _seconds_left(self, now: float) -> float | None:
        """Rounds to come at the mean speed since `start`; None before the first round is complete."""
        done = self._round - self._first_round
        return (now - self._started) / done * (self._rounds - self._round) if done > 0 else None


def describe(record: Metrics) -> str:
    """One evaluation in words: `accuracy 97.31 %  1.24 Mbit`, or another main metric where there is no accuracy."""
    metric = main_metric([record])
    parts = [in_words(metric, record[metric])] if metric is not None else []
    if "bits/total" in record:
        parts.append(units.bits(record["bits/total"]))
    return "  ".join(parts)


def _screen(stream: TextIO) -> Screen:
    """A bar where the stream is a terminal that can move its cursor, else lines."""
    if stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown"):
        from fedcomp.display.bar import Bar

        return Bar(stream)
    return Lines(stream)
