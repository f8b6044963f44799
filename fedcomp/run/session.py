"""A simulation in its folder: resumes, records, checkpoints, shows progress, and stops without losing anything."""

from __future__ import annotations

import functools
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedcomp.display.curve_plot import plot_curve
from fedcomp.display.main_metric import main_metric
from fedcomp.display.progress import Progress
from fedcomp.distributed.context import ProcessContext, SingleProcess
from fedcomp.records import checkpoint as checkpoints
from fedcomp.records.atomic_write import sync
from fedcomp.records.checkpoint import Checkpoint
from fedcomp.records.metrics_file import FILE as RECORD
from fedcomp.records.metrics_file import Line, Record, check_complete, read_lines
from fedcomp.records.repetitions import FILE as REPETITIONS
from fedcomp.records.repetitions import PerRepetition, Repetitions, read_repetitions
from fedcomp.records.run_folder import CHECKPOINT, CURVE
from fedcomp.records.status import State, Status, write_status
from fedcomp.run.error_location import first_line
from fedcomp.run.evaluation_queue import EvaluationQueue
from fedcomp.run.memory_growth import MemoryGrowthMonitor
from fedcomp.runtime.signals import GracefulStop, Interrupted
from fedcomp.simulation.async_metrics import MetricsReader, SyncReader
from fedcomp.simulation.divergence import DivergenceMonitor
from fedcomp.simulation.round_result import RoundRunner
from fedcomp.tracking.contract import RunInfo, Tracker
from fedcomp.wire import Ledger

CHECKPOINT_SECONDS = 30.0
STATUS_SECONDS = 1.0
"""Least time between two writings of `status.json` while rounds go on."""
OnEvaluation = Callable[[Line, PerRepetition], None]
"""Callback of an evaluation: takes its line and the repetitions' own values."""


@dataclass(frozen=True)
class Session:
    """One run in its folder.

    Attributes:
        simulation: what is run, once or in repetitions. info: which run this is. tracker: a view beside the record.
        progress: for the user.
        eval_every: rounds between evaluations; round 0 and the last round are always evaluated.
        checkpoint_every: rounds between checkpoints; None: one every 30 seconds, and at the end.
        pictures: whether the curve is drawn. processes: the processes of the run.
        reader: copies an evaluation's values to the host; asynchronous ones let the next round be launched first.
        started: callback that receives the number of rounds complete at the start.
    """

    simulation: RoundRunner
    info: RunInfo
    tracker: Tracker
    progress: Progress
    eval_every: int = 1
    checkpoint_every: int | None = None
    pictures: bool = True
    processes: ProcessContext = field(default_factory=SingleProcess)
    reader: MetricsReader = field(default_factory=SyncReader)
    started: Callable[[int], object] = round

    @property
    def folder(self) -> Path:
        """Where the run's files lie."""
        return self.info.folder

    def run(self) -> list[Line]:
        """Run to the end from wherever the folder's checkpoint stands; returns all lines of the record.

        Raises:
            Interrupted: stopped by a signal; the same command resumes it.
            ValueError: the run failed, with one line that says why; the record up to there is kept.
        """
        record = Record(self.folder)
        state: State = "failed"
        error: str | None = None
        saved: int | None = None
        tracked = False
        try:
            start, repetitions = self.processes.broadcast_checkpoint(self._resume()), Repetitions(self.folder)
            for file in (record, repetitions):
                file.truncate_after(start.round if start.round else -1)
            self.started(start.round)
            self.tracker.start(self.info)
            tracked = True
            with GracefulStop() as stop, self.progress:
                states, start = [start.state], replace(start, state=None)
                self._rounds(start, states.pop(), stop, functools.partial(self._log, record, repetitions))
            for file in (record, repetitions):
                file.check()
            checkpoints.drop_older(self.folder / CHECKPOINT)
            state = "finished"
        except Interrupted as interruption:
            state, error, saved = "interrupted", str(interruption), interruption.round
            raise
        except KeyboardInterrupt as interruption:
            state, error = "interrupted", "stopped at once; the last checkpoint holds"
            raise Interrupted(signal.SIGINT, error) from interruption
        except BaseException as failure:
            error = first_line(failure)
            raise
        finally:
            lines = _readable(record.path)
            done = int(lines[-1]["round"]) if lines else 0
            try:
                write_status(self.folder, Status(state, done if saved is None else saved, error))
                self._draw(lines)
            finally:
                if tracked:
                    self.tracker.finish(state, lines[-1] if lines else {})
        return lines

    def _resume(self) -> Checkpoint:
        first = self.simulation.init()
        start = checkpoints.resume(self.folder / CHECKPOINT, first, self.info.config_hash, self.progress.note)
        if start is None:
            return Checkpoint(0, first, Ledger().counters(), 0.0)
        self._check_lines(start.round)
        self.progress.note(f"resuming after round {start.round}")
        return start

    def _check_lines(self, done: int) -> None:
        """Raise ValueError unless the record has every line up to round `done`, where a run goes on."""
        found = {self.folder / RECORD: [int(line["round"]) for line in read_lines(self.folder / RECORD)]}
        if self.info.config.get("repeats", 1) > 1:
            found[self.folder / REPETITIONS] = list(read_repetitions(self.folder))
        for path, rounds in found.items():
            check_complete(path, rounds, done, self.simulation.rounds, self.eval_every)

    def _rounds(self, start: Checkpoint, state: Any, stop: GracefulStop, on_evaluation: OnEvaluation) -> None:
        """Run the remaining rounds from `state` on, to which the caller keeps no reference: its memory can be freed."""
        simulation, ledger = self.simulation, Ledger()
        ledger.restore(start.ledger)
        began = time.perf_counter() - start.seconds
        saved = status_written = time.perf_counter()
        monitor, growth = DivergenceMonitor(self.reader.asynchronous), MemoryGrowthMonitor()

        def write(done: int, values: Line, each: PerRepetition) -> None:
            nonlocal status_written
            for text in growth.check(done, values) if self.processes.is_main_process else ():
                self.info.note(text)
            on_evaluation({"round": done} | values | {"seconds": time.perf_counter() - began}, each)
            if time.perf_counter() - status_written > STATUS_SECONDS:
                self._write_status(Status("running", done))
                status_written = time.perf_counter()

        def save(done: int) -> None:
            queue.flush()
            monitor.check()
            self.processes.check_in_sync(state)
            self._write_checkpoint(Checkpoint(done, state, ledger.counters(), time.perf_counter() - began))
            self._write_status(Status("running", done))

        self.progress.start(start.round, simulation.rounds)
        self._write_status(Status("running", start.round))
        with EvaluationQueue(simulation, self.reader, monitor, write) as queue:
            if not start.round:
                queue.submit(0, state, None, ledger)
            for done in range(start.round + 1, simulation.rounds + 1):
                state, result = simulation.round(done - 1, state, ledger, donate_state=not queue.in_flight)
                queue.flush()  # an earlier round's line, whose evaluation has run beside this round
                monitor.add(done, result.cohort, result.metrics, result.sizes)
                if done % self.eval_every == 0 or done == simulation.rounds:
                    queue.submit(done, state, result, ledger)
                heard, due = self.processes.all_reduce_flags(stop.number, self._due(done, saved))
                if due:
                    save(done)
                    saved = time.perf_counter()
                if heard is not None and done < simulation.rounds:
                    save(done)
                    message = f"interrupted after round {done} of {simulation.rounds}, state saved"
                    raise Interrupted(heard, message, done)
                self.progress.advance(done)
        if not ledger.client_rounds:
            self.info.note(
                f"warning: nobody took part in any of the {simulation.rounds} rounds, so that nothing was learnt: see "
                "the options of participation"
            )

    def _due(self, done: int, saved: float) -> bool:
        if done == self.simulation.rounds:
            return True
        if self.checkpoint_every is not None:
            return done % self.checkpoint_every == 0
        return time.perf_counter() - saved > CHECKPOINT_SECONDS

    def _write_status(self, status: Status) -> None:
        write_status(self.folder, status)

    def _write_checkpoint(self, position: Checkpoint) -> None:
        for name in (RECORD, REPETITIONS):  # a checkpoint needs the lines before it, also after a loss of power
            if (self.folder / name).exists():
                sync(self.folder / name)
        checkpoints.save(self.folder / CHECKPOINT, position, self.info.config_hash)

    def _log(self, record: Record, repetitions: Repetitions, line: Line, each: PerRepetition) -> None:
        repetitions.append(int(line["round"]), each)
        record.append(line)
        self.tracker.log(line)
        self.progress.evaluated(line)

    def _draw(self, lines: list[Line]) -> None:
        if self.pictures and main_metric(lines) is not None:
            title = self.info.config.get("label") or self.info.name
            plot_curve(lines, self.folder / CURVE, str(title), self.simulation.model.dim)


def _readable(path: Path) -> list[Line]:
    """The record's lines; none if it is broken, which is then what the run failed of."""
    try:
        return read_lines(path)
    except ValueError:
        return []
