"""Evaluations between their launch and their line in `metrics.jsonl`."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from fedcomp.network.traffic.recorder import TrafficRecorder
from fedcomp.records.metrics_file import Line, PerRepetition
from fedcomp.simulation.async_metrics import MetricsReader, ScalarGroups
from fedcomp.simulation.divergence import DivergenceMonitor, check_finite
from fedcomp.simulation.round_result import RoundResult, RoundRunner
from fedcomp.wire import Ledger

Write = Callable[[int, Line, PerRepetition], None]
"""Takes the round, its line without round and seconds, and the repetitions' own values."""


@dataclass
class EvaluationQueue:
    """Queue of length one: evaluates asynchronously, then writes results in round order.

    With an asynchronous reader, a session launches the next round before it flushes, so that the GPU computes that
    round while the host waits for this evaluation and writes its line. A checkpoint, an interruption or the error of a
    later round comes after the line. Leaving the block flushes.

    Attributes:
        simulation: whose rounds are evaluated. reader: copies values to the host. write: writes a line.
        monitor: its metrics since the last evaluation are read with the next one, and checked first.
        recorder: of the run's traffic, which is read and timed with each evaluation; None: nobody asks for it.
    """

    simulation: RoundRunner
    reader: MetricsReader
    monitor: DivergenceMonitor
    write: Write
    recorder: TrafficRecorder | None = None
    _finish: Callable[[], None] | None = field(default=None, init=False)

    @property
    def in_flight(self) -> bool:
        """Whether an evaluation is running, which may still read the state that it was launched for."""
        return self._finish is not None

    def submit(self, done: int, state: Any, result: RoundResult | None, ledger: Ledger) -> None:
        """Evaluate `state`, `result` and `ledger` after `done` rounds. Raises Diverged, with a synchronous reader."""
        self.flush()
        simulation, seen, spent = self.simulation, self.monitor.take(), ledger.copy()

        def evaluate() -> ScalarGroups:
            found = simulation.evaluate(done, state, result)
            return found.line, found.each, seen.sums(), spent.device_counts

        times = None if self.recorder is None else self.recorder.submit()
        values = self.reader.read(evaluate)

        def finish() -> None:
            line, each, sums, counts = values()
            seen.check(sums)
            check_finite(done, line)
            spent.resolve(counts)
            self.write(done, line | simulation.bits_metrics(spent) | (times() if times else {}), each)

        self._finish = finish
        if not self.reader.asynchronous:
            self.flush()

    def flush(self) -> None:
        """Wait for the evaluation that is in flight and write its line. Raises Diverged: a value is not finite."""
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """If the pending evaluation diverged, raise that instead of the later error."""
        # A device that has failed cannot be read: keep its original error.
        with contextlib.suppress(RuntimeError) if error is not None else contextlib.nullcontext():
            self.flush()
