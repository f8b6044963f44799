"""What a grid says while it lasts: one line for each run that ends."""

from __future__ import annotations

import threading

from fedcomp.display.console import say
from fedcomp.launcher.contract import RunOutcome


class Tally:
    """Counts runs as they end, from any thread. `total`: how many there are."""

    def __init__(self, total: int) -> None:
        self._total, self._ended = total, 0
        self._lock = threading.Lock()

    def add(self, outcome: RunOutcome) -> RunOutcome:
        """Say what became of one run; returns it."""
        with self._lock:
            self._ended += 1
            became = outcome.error or "finished"
            if outcome.error is not None and not outcome.interrupted:
                became = f"failed: {outcome.error}"
            say(f"[{self._ended}/{self._total}] run {outcome.run.number} ({outcome.run.words}) {became}")
        return outcome
