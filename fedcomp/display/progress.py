"""A run's progress: a bar on a terminal, a few plain lines elsewhere, nothing when quiet.

`advance` is called in every round, and a round may take 0.8 ms: it reads the clock and returns, unless a redraw is due.
No thread draws, so neither a slow terminal nor Ctrl-C can leave one behind. Where the output cannot be written (the
reader of a pipe has died, a disk is full), progress stops and the run continues.
"""

import sys
from collections.abc import Callable
from time import perf_counter
from types import TracebackType
from typing import Literal, Self, TextIO

from fedcomp.display import units
from fedcomp.display.console import redirect_to_null
from fedcomp.display.metric import main_metric
from fedcomp.display.screens import Lines, Screen, screen_for
from fedcomp.records.metrics_file import Metrics

Verbosity = Literal["quiet", "normal", "verbose"]


class Progress:
    """Progress of one run; a context manager, so that Ctrl-C restores the terminal.

    Args:
        verbosity: quiet shows nothing; normal shows a bar, or else lines: one per evaluation (at most one a second),
            and one every five seconds without an evaluation; verbose prints a line for each evaluation as well.
        stream: where to show it; None: the standard error stream.
    """

    def __init__(self, verbosity: Verbosity = "normal", stream: TextIO | None = None) -> None:
        self._verbose = verbosity == "verbose"
        self._stream = stream or sys.stderr
        self._screen = Screen() if verbosity == "quiet" else screen_for(self._stream)
        self._metrics = ""
        self._round = self._rounds = 0
        self._paced: tuple[int, float] | None = None
        self._due = self._due_evaluated = float("inf")
        self._pending = False

    def start(self, round: int, rounds: int) -> None:
        """Begin at `round` (0, or the checkpoint's) of `rounds`.

        The time left is estimated from the rounds since, but for the first of them, which may load or compile code.
        """
        self._round = round
        self._rounds, self._paced = rounds, None
        now = perf_counter()
        self._due, self._due_evaluated = now + self._screen.seconds, now
        self._show(lambda screen: screen.start(rounds))

    def advance(self, round: int) -> None:
        """`round` rounds are complete; redraws if that is due, and the round was not shown with its evaluation."""
        shown, self._round = self._round == round and not self._pending, round
        now = perf_counter()
        if self._paced is None:
            self._paced = round, now
        if now >= self._due and not shown:
            self._draw()

    def evaluated(self, record: Metrics) -> None:
        """Show an evaluation: its main metric and bits so far. The first and the last are always shown."""
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
        """Print one line, above the bar if there is one; print nothing when quiet."""
        self._show(lambda screen: screen.note(text))

    def stop(self) -> None:
        """Show a pending evaluation, and restore the terminal; may be called twice, or before `start`."""
        if self._pending:
            self._paced = None  # no round follows, as after max_bits
            self._draw()
        self._due = self._due_evaluated = float("inf")
        self._show(lambda screen: screen.stop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _draw(self) -> None:
        now, new = perf_counter(), self._pending
        self._pending = False
        self._due = now + self._screen.seconds
        seconds = self._seconds_left(now)
        left = f"{units.duration(seconds)} left" if seconds else ""
        self._show(lambda screen: screen.draw(self._round, self._rounds, self._metrics, left, new))

    def _show(self, action: Callable[[Screen], None]) -> None:
        """Apply `action` to the screen; nothing is shown any more once it cannot be written."""
        try:
            action(self._screen)
        except OSError:
            self._screen, self._due = Screen(), float("inf")
            redirect_to_null(self._stream)

    def _seconds_left(self, now: float) -> float | None:
        """Seconds for the remaining rounds at the mean speed since the first was complete; None before the second."""
        if self._paced is None or self._round == self._paced[0]:
            return None
        first, since = self._paced
        return (now - since) / (self._round - first) * (self._rounds - self._round)


def describe(record: Metrics) -> str:
    """One evaluation as text: its main metric and its bits, such as `accuracy 97.31 %  1.24 Mbit`."""
    metric = main_metric([record])
    parts = [metric.text(record[metric.key])] if metric is not None else []
    if "bits/total" in record:
        parts.append(units.bits(record["bits/total"]))
    if "time/total" in record:
        parts.append(f"{units.duration(record['time/total'])} on the network")
    return "  ".join(parts)
