"""A process of a run that another one leads: it makes the same rounds and writes nothing."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from fedcomp.records.checkpoint import Checkpoint
from fedcomp.records.metrics_file import Line
from fedcomp.records.status import Status
from fedcomp.run.session import Session
from fedcomp.runtime.graceful_stop import Interrupted, StopRequest
from fedcomp.wire import Ledger


@dataclass(frozen=True)
class Follower(Session):
    """The session of every process but the first."""

    def run(self) -> list[Line]:
        """Run to the end, from wherever the leader stands; returns no lines, which are the leader's.

        Raises:
            SystemExit: some process heard a signal; the leader saves the state and says so.
            Interrupted: this one was told to stop at once. ValueError: the run failed.
        """
        start = self.peers.start(Checkpoint(0, self.simulation.init(), Ledger().counters(), 0.0))
        states, start = [start.state], replace(start, state=None)
        try:
            with StopRequest() as stop:
                self._rounds(start, states.pop(), stop, keep=lambda line, each: None)  # the leader keeps the same lines
        except Interrupted as interruption:
            raise SystemExit(128 + interruption.signal) from interruption
        except KeyboardInterrupt as interruption:
            raise Interrupted(signal.SIGINT, "stopped at once; the last checkpoint holds") from interruption
        return []

    def _tell(self, status: Status) -> None:
        """The leader does."""

    def _write(self, position: Checkpoint) -> None:
        """The leader does."""
