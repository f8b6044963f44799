"""The rounds of a run: resumes, evaluates, saves, and stops at a signal without losing anything.

Every process of a run executes this; what is written and shown is its writer's business (`writer.py`).
"""

import signal
import time
from dataclasses import dataclass, field, replace
from typing import Any

from fedcomp.distributed.context import ProcessContext
from fedcomp.network.traffic.recorder import TrafficRecorder
from fedcomp.random.global_draws import ALL, TORCHS, no_global_draws
from fedcomp.records.checkpoint import Checkpoint
from fedcomp.records.metrics_file import Line, PerRepetition
from fedcomp.runtime.signals import GracefulStop, Interrupted
from fedcomp.simulation.async_metrics import MetricsReader
from fedcomp.simulation.divergence import Diverged, DivergenceMonitor, MemoryGrowthMonitor
from fedcomp.simulation.round_result import RoundRunner
from fedcomp.training.evaluation_queue import EvaluationQueue
from fedcomp.training.writer import Writer
from fedcomp.wire import Ledger

CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class Session:
    """One run, from its checkpoint to its end.

    Attributes:
        simulation: what is run, once or in repetitions. writer: writes and shows it.
        eval_every: rounds between evaluations; round 0 and the last round are always evaluated.
        max_bits: the round after which at least so many bits were sent in both directions is the last; None: all
            rounds are run.
        checkpoint_every: rounds between checkpoints; None: one every 30 seconds, and at the end.
        processes: the processes of the run.
        reader: copies an evaluation's values to the host; asynchronous ones let the next round be launched first.
        recorder: of the run's traffic and times; None: nobody asks for them.
        suspect: what else than the options may make values that are not finite, to end the line of such an error.
    """

    simulation: RoundRunner
    writer: Writer
    eval_every: int = 1
    checkpoint_every: int | None = None
    processes: ProcessContext = field(default_factory=ProcessContext)
    reader: MetricsReader = field(default_factory=MetricsReader)
    recorder: TrafficRecorder | None = None
    max_bits: float | None = None
    suspect: str | None = None

    def run(self) -> list[Line]:
        """Run to the end from wherever the checkpoint stands; returns all lines of the record, in the main process.

        Raises:
            Interrupted: stopped by a signal; the same command resumes it.
            ValueError: the run failed, with one line that says why; the record up to there is kept.
        """
        with self.writer.session(self.simulation.model.dim):
            try:
                start = self.processes.broadcast_checkpoint(self._start())
                self.writer.start(start.round)
                if self.recorder is not None:
                    self.recorder.restore(self.processes.broadcast_object(self.writer.resume_traffic(start.round)))
                with GracefulStop() as stop, self.writer.progress:
                    states, start = [start.state], replace(start, state=None)
                    try:
                        self._rounds(start, states.pop(), stop)
                    except Diverged as error:
                        if self.suspect is None:
                            raise
                        raise Diverged(f"{error}; {self.suspect}") from error
                if self.recorder is not None:
                    self.writer.slowest(self.recorder.critical)
                self.writer.finish()
            except KeyboardInterrupt as interruption:
                raise Interrupted(signal.SIGINT, "stopped at once; the last checkpoint holds") from interruption
        return self.writer.lines()

    def _start(self) -> Checkpoint:
        """Where this process finds the run; the main process finds its checkpoint."""
        first = self.simulation.init()
        start = self.writer.resume(first, self.simulation.rounds, self.eval_every)
        return start or Checkpoint(0, first, Ledger().counters(), 0.0, open_ended=True)

    def _rounds(self, start: Checkpoint, state: Any, stop: GracefulStop) -> None:
        """Run the remaining rounds from `state` on, to which the caller keeps no reference: its memory can be freed."""
        simulation, processes, writer, ledger = self.simulation, self.processes, self.writer, Ledger()
        ledger.restore(start.ledger)
        if self.recorder is not None:
            self.recorder.attach(ledger)
        began = time.perf_counter() - start.seconds
        saved = time.perf_counter()
        monitor, growth = DivergenceMonitor(self.reader.asynchronous), MemoryGrowthMonitor(writer.lines())

        def write(done: int, values: Line, each: PerRepetition) -> None:
            for text in growth.check(done, values):
                writer.note(text)
            writer.evaluation({"round": done} | values | {"seconds": time.perf_counter() - began}, each)

        def save(done: int) -> None:
            queue.flush()
            monitor.check()
            whole = simulation.gather_state(state)
            processes.check_in_sync(whole)
            if self.recorder is not None:
                writer.traffic(self.recorder.take_segment(), done)
            seconds, open_ended = time.perf_counter() - began, start.open_ended and simulation.open_ended
            writer.checkpoint(Checkpoint(done, whole, ledger.counters(), seconds, open_ended=open_ended))

        writer.progress.start(start.round, simulation.rounds)
        with EvaluationQueue(simulation, self.reader, monitor, write, self.recorder) as queue:
            if not start.round:
                queue.submit(0, state, None, ledger)
            done, last = start.round, self._is_last(start.round, ledger)
            looked = False  # whether a round with clients was looked at
            while not last:
                done += 1
                of = (TORCHS,) if looked else ALL  # other threads may draw from others, such as a tracker's
                with no_global_draws("this run's round", of=of):
                    state, result = simulation.round(done - 1, state, ledger, donate_state=not queue.in_flight)
                looked = looked or result.cohort.size > 0
                for text in () if self.recorder is None else self.recorder.follow():
                    writer.note(text)
                queue.flush()  # an earlier round's line, whose evaluation has run beside this round
                monitor.add(done, result.cohort, result.metrics, result.sizes)
                last = self._is_last(done, ledger)
                if done % self.eval_every == 0 or last:
                    queue.submit(done, state, result, ledger)
                heard, due = processes.all_reduce_flags(stop.number, last or self._due(done, saved))
                if due:
                    save(done)
                    saved = time.perf_counter()
                if heard is not None and not last:
                    save(done)
                    processes.broadcast_object(done)  # the others end once the main process has saved
                    message = f"interrupted after round {done} of {simulation.rounds}, state saved"
                    raise Interrupted(heard, message, done)
                writer.progress.advance(done)
        if done < simulation.rounds:
            writer.note(f"max_bits={self.max_bits:g} were sent after round {done} of {simulation.rounds}")
        if not ledger.client_rounds:
            writer.note(
                f"warning: nobody took part in any of the {done} rounds, so that nothing was learnt: see "
                "the options of participation"
            )

    def _is_last(self, done: int, ledger: Ledger) -> bool:
        if done >= self.simulation.rounds or self.max_bits is None:
            return done >= self.simulation.rounds
        return self.simulation.bits_metrics(ledger)["bits/total"] >= self.max_bits

    def _due(self, done: int, saved: float) -> bool:
        if self.checkpoint_every is not None:
            return done % self.checkpoint_every == 0
        return time.perf_counter() - saved > CHECKPOINT_SECONDS
