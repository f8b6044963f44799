"""The default tracker: the run's record is enough."""

from __future__ import annotations

from fedcomp.records.metrics_file import Metrics
from fedcomp.tracking.contract import RunInfo


class Jsonl:
    """Adds nothing: the engine writes `metrics.jsonl` and `status.json` itself, for every tracker.

    This is the class to copy for a new tracker.
    """

    def start(self, run: RunInfo) -> None:
        """Nothing to open."""

    def log(self, record: Metrics) -> None:
        """Nothing to do: the line is in `metrics.jsonl` already."""

    def finish(self, state: str, summary: Metrics) -> None:
        """Nothing to close."""
