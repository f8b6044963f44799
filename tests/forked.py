"""Commands in processes forked from this one: what the tests have imported is there, where a new process takes seconds.

They are processes like others: they are killed, get signals, have their own standard streams and exit status.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra

context = multiprocessing.get_context("fork")
"""No thread of the tests computes."""


class Forked:
    """A process that does `main()`, and ends with the tests at the latest.

    Args:
        argv: its command line, with the name of the program. folder: where it runs. shown: the file that it writes to.
    """

    def __init__(self, main: Callable[[], object], argv: list[str], folder: Path, shown: Path) -> None:
        self._shown = shown
        self._process = context.Process(target=self._do, args=(main, argv, folder), daemon=True)
        self._process.start()

    def _do(self, main: Callable[[], object], argv: list[str], folder: Path) -> None:
        os.chdir(folder)
        sys.argv = argv
        sys.stdout = sys.stderr = self._shown.open("w", buffering=1)
        for number in (1, 2):
            os.dup2(sys.stdout.fileno(), number)
        GlobalHydra.instance().clear()
        main()

    def poll(self) -> int | None:
        """Its exit status, or minus the number of the signal that ended it; None: it is running."""
        return self._process.exitcode

    def wait(self, timeout: float = 120.0) -> int | None:
        """As `poll`, once it has ended."""
        self._process.join(timeout)
        return self.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """As `kill` does."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def shown(self) -> str:
        """What it has written, to either stream."""
        return self._shown.read_text()
