"""Every process of a run but the main one: it computes the same rounds and writes nothing."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from fedcomp.records.checkpoint import Checkpoint
from fedcomp.records.metrics_file import Line
from fedcomp.records.status import Status
from fedcomp.run.session import Session
from fedcomp.runtime.signals import GracefulStop, Interrupted
from fedcomp.wire import Ledger


@dataclass(frozen=True)
class Follower(Session):
    """The session of every process but the main one."""

    def run(self) -> list[Line]:
        """Run to the end, from the main process's checkpoint; returns no lines, since the main process writes them.

        Raises:
            SystemExit: some process received a signal; the main process saves the state and reports it.
            Interrupted: this one was told to stop at once. ValueError: the run failed.
        """
        start = self.processes.broadcast_checkpoint(Checkpoint(0, self.simulation.init(), Ledger().counters(), 0.0))
        states, start = [start.state], replace(start, state=None)
        try:
            with GracefulStop() as stop:
                # The main process writes these lines.
                self._rounds(start, states.pop(), stop, on_evaluation=lambda line, each: None)
        except Interrupted as interruption:
            raise SystemExit(128 + interruption.signal) from interruption
        except KeyboardInterrupt as interruption:
            raise Interrupted(signal.SIGINT, "stopped at once; the last checkpoint holds") from interruption
        return []

    def _write_status(self, status: Status) -> None:
        """The main process does."""

    def _write_checkpoint(self, position: Checkpoint) -> None:
        """The main process does."""
