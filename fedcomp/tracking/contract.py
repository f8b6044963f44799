"""What a tracker is, which shows a run elsewhere.

The engine always writes `metrics.jsonl` and `status.json` (`records/metrics_file.py`, `records/status.py`); a tracker
gets the same lines and may show them elsewhere. A run is complete without one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcomp.records.metrics_file import Metrics


@dataclass(frozen=True)
class RunInfo:
    """Which run this is.

    Attributes:
        folder: where the run's files lie.
        name: the experiment's name, the folder's grandparent.
        config_hash: of everything in the config that changes results but the seed.
        seed: of this run.
        config: the resolved config as plain dicts, lists and scalars.
        facts: numbers that follow from the config: parameters, expected participants a round, samples.
        note: shows the user one line.
    """

    folder: Path
    name: str
    config_hash: str
    seed: int
    config: dict[str, Any]
    facts: Mapping[str, float | int] = field(default_factory=dict)
    note: Callable[[str], None] = print


class Tracker:
    """Shows a run elsewhere. The engine calls `start` once, `log` per evaluation, and always `finish` once.

    Here each does nothing.
    """

    def start(self, run: RunInfo) -> None:
        """Open the view; after a resume, continue the earlier one. Raises ValueError for settings that cannot work."""

    def log(self, record: Metrics) -> None:
        """Show one evaluation. `record["round"]` is the x axis: after a resume, rounds may come a second time."""

    def finish(self, state: str, summary: Metrics) -> None:
        """Close the view: `state` is finished, failed or interrupted; `summary` the last line (empty if none)."""

    def lacks(self, folder: Path) -> bool:
        """Whether the run in `folder`, which was finished earlier, is still to be shown, by `start` and `finish`."""
        return False


class Jsonl(Tracker):
    """Adds nothing to `metrics.jsonl` and `status.json`, which every run has."""
