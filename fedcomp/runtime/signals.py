"""Signals that stop a run: at once before the first round, and between two rounds once there is state to save."""

import os
import signal
import threading
from dataclasses import dataclass
from types import FrameType
from typing import ClassVar, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Ctrl-C; `kill`, scancel; a closed terminal; Slurm's warning of a time limit or preemption (`--signal=USR2@120`)."""
SIGINT_STATUS = 128 + signal.SIGINT
"""Exit status of a process that Ctrl-C has ended."""


class ExitOnSigint:
    """A SIGINT handler that prints `line` and ends the process; under torchrun only the process of rank 0 prints it.

    Python's own KeyboardInterrupt does not do this: while torch or numpy imports an optional package, it takes the
    exception for a missing package and goes on half imported.
    """

    def __init__(self, line: str) -> None:
        self.line = line

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.environ.get("RANK", "0") == "0":
            os.write(2, f"{self.line}\n".encode())
        os._exit(SIGINT_STATUS)


def exit_on_sigint(line: str) -> None:
    """Install `ExitOnSigint(line)`: from now on, Ctrl-C ends the process at once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise ignored: a background job
        signal.signal(signal.SIGINT, ExitOnSigint(line))


def restore_sigint() -> None:
    """Restore Python's SIGINT handler so that clean-up code runs."""
    if isinstance(signal.getsignal(signal.SIGINT), ExitOnSigint):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def can_handle_signals() -> bool:
    """Whether this thread may: only the main one, and a run may be started in another, such as a notebook's."""
    return threading.current_thread() is threading.main_thread()


def handled_signals() -> tuple[signal.Signals, ...]:
    """All `SIGNALS`, but not SIGHUP if it was ignored when the process started (`nohup`). None in another thread."""
    if not can_handle_signals():
        return ()
    return tuple(one for one in SIGNALS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN)


class Interrupted(Exception):
    """A signal has stopped the run, and its state is saved.

    Attributes:
        signal: its number. round: number of rounds completed and saved; None if it stopped at once.
    """

    def __init__(self, signal_number: int, message: str, round: int | None = None) -> None:
        super().__init__(message)
        self.signal = signal_number
        self.round = round


@dataclass
class GracefulStop:
    """Records the first of `SIGNALS`; the training loop checks `number` between rounds. A second Ctrl-C stops at once.

    Any other second signal is ignored: schedulers send several in a row (SIGUSR2, SIGTERM).

    Attributes:
        unheeded: the signal that came to this process's last run and did not end it: it finished or failed first.
    """

    number: int | None = None
    unheeded: ClassVar[int | None] = None

    def __enter__(self) -> Self:
        GracefulStop.unheeded = None
        self._previous = {number: signal.signal(number, self._handle) for number in handled_signals()}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if kind is not Interrupted:
            GracefulStop.unheeded = self.number

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = self.number or number
