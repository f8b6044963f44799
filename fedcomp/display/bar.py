"""Progress as a bar on a terminal, drawn with rich."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from fedcomp.display import units

REDRAW_SECONDS = 0.1


class Bar:
    """A bar with round, metrics and time left, redrawn only when asked (no thread).

    Args:
        stream: a terminal.
    """

    seconds = REDRAW_SECONDS
    seconds_evaluated = REDRAW_SECONDS

    def __init__(self, stream: TextIO) -> None:
        self._bar = Progress(
            TextColumn("round {task.completed}/{task.total}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[metrics]}", style="bold"),
            TextColumn("{task.fields[left]}", style="dim"),
            console=Console(file=stream, highlight=False),
            auto_refresh=False,
            redirect_stdout=sys.stdout.isatty(),
        )

    def start(self, rounds: int) -> None:
        """Take the terminal's last line."""
        self._task = self._bar.add_task("", total=rounds, metrics="", left="")
        self._bar.start()

    def draw(self, round: int, rounds: int, metrics: str, seconds_left: float | None) -> None:
        """Redraw the bar."""
        left = f"{units.duration(seconds_left)} left" if seconds_left else ""
        self._bar.update(self._task, completed=round, metrics=metrics, left=left, refresh=True)

    def note(self, text: str) -> None:
        """One line above the bar."""
        self._bar.console.print(text, markup=False)

    def stop(self) -> None:
        """Leave the bar where it is and give the cursor back."""
        self._bar.stop()
