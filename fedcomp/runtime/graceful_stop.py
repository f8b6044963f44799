"""Stops a run at a signal, between two rounds, so that its state is saved first."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Ctrl-C; `kill`, scancel; a terminal that was closed; Slurm's warning of a time limit or of preemption
(`--signal=USR2@120`)."""


def heeded() -> tuple[signal.Signals, ...]:
    """The signals to act on: all, but SIGHUP if it was ignored when the process began (`nohup`)."""
    return tuple(one for one in SIGNALS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN)


class Interrupted(Exception):
    """The run was asked to stop by a signal, and has saved its state.

    Attributes:
        signal: its number. round: rounds completed and saved; None if it stopped at once.
    """

    def __init__(self, signal_number: int, message: str, round: int | None = None) -> None:
        super().__init__(message)
        self.signal = signal_number
        self.round = round


@dataclass
class GracefulStop:
    """Records the first of `SIGNALS`; the training loop checks `number` between rounds. A second Ctrl-C stops at once.

    Schedulers send several signals in a row (SIGUSR2, SIGTERM), so any other second signal is ignored.
    """

    number: int | None = None

    def __enter__(self) -> GracefulStop:
        self._before = {number: signal.signal(number, self._hear) for number in heeded()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = self.number or number
