"""A run's progress in a notebook: one output that is redrawn, with a bar, the metrics and the time left."""

import html
import sys
from typing import Any


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar:
    """A bar in the output of a cell."""

    seconds = 0.25
    seconds_evaluated = 0.25

    def __init__(self) -> None:
        self._handle: Any = None

    def start(self, rounds: int) -> None:
        """Show the bar."""
        self._display(0, rounds, "")

    def draw(self, round: int, rounds: int, metrics: str, left: str) -> None:
        """Redraw the bar."""
        self._display(round, rounds, "  ".join(part for part in (metrics, left) if part))

    def note(self, text: str) -> None:
        """Print one line below the bar."""
        print(text, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Leave the bar as it is."""

    def _display(self, round: int, rounds: int, text: str) -> None:
        from IPython.display import HTML, display

        bar = f'<progress value="{round}" max="{rounds}" style="width: 16em"></progress>'
        shown = HTML(f"<div>round {round}/{rounds} {bar} {html.escape(text)}</div>")
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)
