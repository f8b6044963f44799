"""Where a run's progress is drawn: a bar on a terminal or in a notebook, lines elsewhere."""

import html
import math
import os
import sys
from typing import Any, TextIO


class Screen:
    """Draws progress; this class shows nothing.

    Attributes:
        seconds: least time between two draws. seconds_evaluated: between two that show an evaluation.
    """

    seconds = seconds_evaluated = math.inf

    def start(self, rounds: int) -> None:
        """Begin, before the first draw."""

    def draw(self, round: int, rounds: int, metrics: str, left: str, new: bool = True) -> None:
        """Show the round, the last evaluation and the time left as text ("": none yet). `new`: not drawn before."""

    def note(self, text: str) -> None:
        """Print one line beside what is drawn."""

    def stop(self) -> None:
        """Leave what was drawn, and restore the terminal."""


class Bar(Screen):
    """A bar with round, metrics and time left, drawn with rich. `stream`: a terminal."""

    seconds = seconds_evaluated = 0.1

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            BarColumn(bar_width=24),  # a narrow terminal cuts the bar first, then the text's end
            TextColumn(
                "round {task.completed}/{task.total}  [bold]{task.fields[metrics]}[/]  [dim]{task.fields[left]}[/]"
            ),
            console=Console(file=stream, highlight=False),
            auto_refresh=False,
            redirect_stdout=sys.stdout.isatty(),
        )

    def start(self, rounds: int) -> None:
        """Start the bar on the terminal's last line."""
        self._task = self._bar.add_task("", total=rounds, metrics="", left="")
        self._bar.start()

    def draw(self, round: int, rounds: int, metrics: str, left: str, new: bool = True) -> None:
        """Redraw the bar."""
        self._bar.update(self._task, completed=round, metrics=metrics, left=left, refresh=True)

    def note(self, text: str) -> None:
        """Print one line above the bar."""
        self._bar.console.print(text, markup=False)

    def stop(self) -> None:
        """Leave the bar on the terminal and restore the cursor."""
        self._bar.stop()


class Lines(Screen):
    """Plain lines for log files. `stream`: where they are printed."""

    seconds, seconds_evaluated = 5.0, 1.0

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def draw(self, round: int, rounds: int, metrics: str, left: str, new: bool = True) -> None:
        """Print one line. An evaluation is printed once: the lines of later rounds leave its metrics out."""
        shown = (f"round {round:>{len(str(rounds))}}/{rounds}", metrics if new else "", left)
        self.note("  ".join(part for part in shown if part))

    def note(self, text: str) -> None:
        """Print one line."""
        print(text, file=self._stream, flush=True)


class NotebookBar(Screen):
    """A bar in the output of a cell."""

    seconds = seconds_evaluated = 0.25

    def __init__(self) -> None:
        self._handle: Any = None

    def start(self, rounds: int) -> None:
        """Show the bar."""
        self._display(0, rounds, "")

    def draw(self, round: int, rounds: int, metrics: str, left: str, new: bool = True) -> None:
        """Redraw the bar."""
        self._display(round, rounds, "  ".join(part for part in (metrics, left) if part))

    def note(self, text: str) -> None:
        """Print one line below the bar."""
        print(text, file=sys.stderr, flush=True)

    def _display(self, round: int, rounds: int, text: str) -> None:
        from IPython.display import HTML, display

        bar = f'<progress value="{round}" max="{rounds}" style="width: 16em"></progress>'
        shown = HTML(f"<div>round {round}/{rounds} {bar} {html.escape(text)}</div>")
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)


def screen_for(stream: TextIO) -> Screen:
    """A bar in a notebook, and where the stream is a terminal that can move its cursor; else lines."""
    if stream is sys.stderr and in_notebook():
        return NotebookBar()
    can_redraw = stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    return Bar(stream) if can_redraw else Lines(stream)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
