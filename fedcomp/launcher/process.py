"""Runs in processes of their own: what kills one leaves the others alone, and a signal reaches all of them."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import IO, Protocol, Self

from fedcomp.display import units
from fedcomp.display.console import say
from fedcomp.launcher.contract import GridRun, RunOutcome
from fedcomp.runtime.signals import handled_signals


def python_path() -> str:
    """PYTHONPATH of a process that is to find this package, also where it is no more than a checkout."""
    root, given = Path(__file__).resolve().parents[2], os.environ.get("PYTHONPATH")
    installed = root.name in ("site-packages", "dist-packages")
    return os.pathsep.join([*([] if installed else [str(root)]), *([given] if given else [])])


class Started(Protocol):
    """The process of a run, which has been started."""

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""

    def wait(self) -> int:
        """Wait for its end; its exit code, minus the signal that killed it."""


class Children:
    """Starts runs as processes and forwards this process's signals to them: each run saves its state and exits.

    To be entered in the main thread; `run` may then be called from any. A process group of its own keeps the
    terminal's Ctrl-C from reaching a run twice.

    Args:
        grace: seconds from a signal until the run is killed, which then resumes from its last checkpoint; None: never.

    Attributes:
        signal_received: the first signal that this process was sent; None: none so far.
    """

    def __init__(self, grace: float | None = None) -> None:
        self.signal_received: int | None = None
        self._grace = grace
        self._live: set[Started] = set()

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._forward) for number in handled_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, run: GridRun, environment: Mapping[str, str] | None = None) -> int:
        """Run one process and return its exit code, minus the signal that killed it; 128 + n if not started.

        1 if its log cannot be written, which `outcome` says.
        """
        if self.signal_received is not None:
            return 128 + self.signal_received
        try:
            run.log.parent.mkdir(parents=True, exist_ok=True)
            log = run.log.open("ab")
        except OSError:
            return 1
        with log:
            process = self._start(run, log, {**os.environ, "PYTHONPATH": python_path(), **(environment or {})})
        self._live.add(process)
        if self.signal_received is not None:  # came while the process was starting
            process.send_signal(self.signal_received)
        try:
            return process.wait()
        finally:
            self._live.discard(process)

    def _start(self, run: GridRun, log: IO[bytes], environment: Mapping[str, str]) -> Started:
        return subprocess.Popen(
            run.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            process_group=0,
        )

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self.signal_received is None:
            self.signal_received = number
            if self._grace is not None:
                timer = threading.Timer(self._grace, self._send, [signal.SIGKILL])
                timer.daemon = True
                timer.start()
        self._send(number)

    def _send(self, number: int) -> None:
        for process in list(self._live):
            process.send_signal(number)


class Tally:
    """Counts runs as they end, from any thread, and says how long the others will take. `total`: how many there are."""

    def __init__(self, total: int) -> None:
        self._total, self._ended, self._began = total, 0, time.monotonic()
        self._lock = threading.Lock()

    def add(self, outcome: RunOutcome, shown: bool = True) -> RunOutcome:
        """Count one run and, if `shown`, print what became of it, of a quiet one its error alone; returns it."""
        with self._lock:
            self._ended += 1
            became = outcome.error or "finished"
            if outcome.error is not None and not outcome.interrupted:
                became = f"failed: {outcome.error}"
            if not shown or (outcome.run.quiet and outcome.error is None):
                return outcome
            left = (time.monotonic() - self._began) / self._ended * (self._total - self._ended)
            ahead = f", about {units.duration(left)} left" if self._ended < self._total else ""
            say(f"[{self._ended}/{self._total}{ahead}] run {outcome.run.number} ({outcome.run.description}) {became}")
        return outcome
