"""An evaluation between its launch and its line in the record."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from fedcomp.display.main_metric import axis_name
from fedcomp.records.metrics_file import Line
from fedcomp.simulation.async_metrics import Parts, Readings
from fedcomp.simulation.divergence import REMEDY, Diverged, Watch
from fedcomp.simulation.round_result import Outcome, Rounds
from fedcomp.wire import Ledger

Each = Mapping[str, Sequence[float]]
Write = Callable[[int, Line, Each], None]
"""Takes the round, its line without round and seconds, and the repetitions' own values."""


class Pending:
    """Launches evaluations and writes their lines, in order; at most one is on its way.

    Where readings are late, a session launches the next round before it settles, so that a GPU has that round to work
    on while the host waits for this evaluation, writes its line and goes on. All else that says how far a run is comes
    after the line: a checkpoint, an interruption, the error of a later round. Leaving the block settles.

    Args:
        simulation: whose rounds they are. readings: how values come to the host. write: keeps a line.
        watch: its metrics since the last evaluation are read with the next one, and looked at first.
    """

    def __init__(self, simulation: Rounds, readings: Readings, watch: Watch, write: Write) -> None:
        self._simulation = simulation
        self._readings = readings
        self._watch = watch
        self._write = write
        self._finish: Callable[[], None] | None = None

    @property
    def reads(self) -> bool:
        """Whether an evaluation is on its way, which may still read the state that it was launched for."""
        return self._finish is not None

    def launch(self, done: int, state: Any, outcome: Outcome | None, ledger: Ledger) -> None:
        """Evaluate after `done` rounds, which left these. Raises Diverged where readings are at once."""
        self.settle()
        simulation, seen, spent = self._simulation, self._watch.take(), ledger.copy()

        def evaluate() -> Parts:
            recorded = simulation.record(done, state, outcome)
            return recorded.line, recorded.each, seen.sums(), spent.device_counts

        values = self._readings.read(evaluate)

        def finish() -> None:
            line, each, sums, counts = values()
            seen.check(sums)
            check_finite(done, line)
            spent.resolve(counts)
            self._write(done, line | simulation.spent(spent), each)

        self._finish = finish
        if not self._readings.late:
            self.settle()

    def settle(self) -> None:
        """Write the line that is on its way, if any. Raises Diverged: something that was evaluated is not finite."""
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()

    def __enter__(self) -> Pending:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """An earlier round's divergence is the reason of what came after it, and takes its place."""
        # A device that has failed gives no values either: what it failed of is the error to tell.
        with contextlib.suppress(RuntimeError) if error is not None else contextlib.nullcontext():
            self.settle()


def check_finite(done: int, line: Line) -> None:
    """Raise Diverged: what the server's model is tested for is no number. Before the first round, anything goes."""
    for name, value in line.items() if done else ():
        if name.startswith("test/") and not math.isfinite(value):
            remedy = REMEDY if name in ("test/loss", "test/excess") else "compress less, or take another estimator"
            raise Diverged(f"round {done}: the {axis_name(name)} of the server's model is {value}; {remedy}")
