"""A simulation in its folder: resumes, records, checkpoints, shows progress, and stops without losing anything."""

from __future__ import annotations

import functools
import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcomp.algorithm.contract import Metrics
from fedcomp.peers import Alone, Peers
from fedcomp.run_folder import CHECKPOINT, CURVE
from fedcomp.simulation import checkpoint as checkpoints
from fedcomp.simulation.checkpoint import Checkpoint
from fedcomp.simulation.loop import Simulation
from fedcomp.simulation.watch import REMEDY, Diverged, Watch
from fedcomp.stop import Interrupted, StopRequest
from fedcomp.tracking.contract import RunInfo, Tracker
from fedcomp.tracking.plots import plot_curve
from fedcomp.tracking.progress import Progress
from fedcomp.tracking.quality import axis_name, main_metric
from fedcomp.tracking.record import FILE as RECORD
from fedcomp.tracking.record import Line, Record, read_lines
from fedcomp.tracking.status import State, Status, read_status, write_status
from fedcomp.wire import Ledger

CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class Session:
    """One run in its folder.

    Attributes:
        simulation: what is run. info: which run this is. tracker: a view beside the record. progress: for the user.
        eval_every: rounds between evaluations; round 0 and the last round are always evaluated.
        checkpoint_every: rounds between checkpoints; None: one every 30 seconds, and at the end.
        pictures: whether the curve is drawn. peers: the processes that make the run.
    """

    simulation: Simulation
    info: RunInfo
    tracker: Tracker
    progress: Progress
    eval_every: int = 1
    checkpoint_every: int | None = None
    pictures: bool = True
    peers: Peers = field(default_factory=Alone)

    @property
    def folder(self) -> Path:
        """Where the run's files lie."""
        return self.info.folder

    def run(self) -> list[Line]:
        """Run to the end from wherever the folder's checkpoint stands; returns all lines of the record.

        Raises:
            Interrupted: stopped by a signal; the same command goes on.
            ValueError: the run failed, with one line that says why; the record up to there is kept.
        """
        record = Record(self.folder)
        start = self.peers.start(self._resume())
        record.truncate_after(start.round if start.round else -1)
        state: State = "failed"
        error: str | None = None
        saved: int | None = None
        self.tracker.start(self.info)
        try:
            with StopRequest() as stop, self.progress:
                self._rounds(start, stop, functools.partial(self._log, record))
            state = "finished"
        except Interrupted as interruption:
            state, error, saved = "interrupted", str(interruption), interruption.round
            raise
        except KeyboardInterrupt as interruption:
            state, error = "interrupted", "stopped at once; the last checkpoint holds"
            raise Interrupted(signal.SIGINT, error) from interruption
        except BaseException as failure:
            error = str(failure).strip().split("\n")[0] or type(failure).__name__
            raise
        finally:
            lines = read_lines(record.path)
            done = int(lines[-1]["round"]) if lines else 0
            try:
                write_status(self.folder, Status(state, done if saved is None else saved, error))
                self._draw(lines)
            finally:
                self.tracker.finish(state, lines[-1] if lines else {})
        return lines

    def _resume(self) -> Checkpoint:
        path, first = self.folder / CHECKPOINT, self.simulation.init()
        if not path.exists():
            return Checkpoint(0, first, Ledger().counters(), 0.0)
        start = checkpoints.load(path, first, self.info.config_hash)
        self.progress.note(f"resuming after round {start.round}")
        return start

    def _rounds(self, start: Checkpoint, stop: StopRequest, keep: Callable[[Line], None]) -> None:
        simulation, watch, ledger = self.simulation, Watch(), Ledger()
        ledger.restore(start.ledger)
        began = time.perf_counter() - start.seconds
        state, saved = start.state, time.perf_counter()

        def save(done: int) -> None:
            self.peers.compare(state)
            self._write(Checkpoint(done, state, ledger.counters(), time.perf_counter() - began))

        def log(done: int, metrics: dict[str, float]) -> None:
            line: Line = {"round": done} | metrics | ledger.record(simulation.model.dim)
            line["seconds"] = time.perf_counter() - began
            keep(line)

        self.progress.start(start.round, simulation.rounds)
        self._tell(Status("running", start.round))
        if not start.round:
            log(0, simulation.evaluate(0, state))
        for done in range(start.round + 1, simulation.rounds + 1):
            state, cohort, metrics = simulation.round(done - 1, state, ledger)
            watch.see(done, cohort, metrics)
            if done % self.eval_every == 0 or done == simulation.rounds:
                watch.check()
                log(done, _test(done, simulation, state) | _means(metrics))
                self._tell(Status("running", done))
            heard, due = self.peers.agree(stop.number, self._due(done, saved))
            if due:
                watch.check()
                save(done)
                saved = time.perf_counter()
            if heard is not None and done < simulation.rounds:
                save(done)
                message = f"interrupted after round {done} of {simulation.rounds}, state saved"
                raise Interrupted(heard, message, done)
            self.progress.advance(done)

    def _due(self, done: int, saved: float) -> bool:
        if done == self.simulation.rounds:
            return True
        if self.checkpoint_every is not None:
            return done % self.checkpoint_every == 0
        return time.perf_counter() - saved > CHECKPOINT_SECONDS

    def _tell(self, status: Status) -> None:
        write_status(self.folder, status)

    def _write(self, position: Checkpoint) -> None:
        checkpoints.save(self.folder / CHECKPOINT, position, self.info.config_hash)

    def _log(self, record: Record, line: Line) -> None:
        record.append(line)
        self.tracker.log(line)
        self.progress.evaluated(line)

    def _draw(self, lines: list[Line]) -> None:
        if self.pictures and main_metric(lines) is not None:
            title = self.info.config.get("label") or self.info.name
            plot_curve(lines, self.folder / CURVE, str(title), self.simulation.model.dim)


def finished(folder: Path, rounds: int) -> list[Line] | None:
    """The record of a run that ended well in this folder; None if there is still something to do."""
    status = read_status(folder)
    if status is None or status.state != "finished" or status.round != rounds:
        return None
    return read_lines(folder / RECORD)


def _test(done: int, simulation: Simulation, state: Any) -> dict[str, float]:
    metrics = simulation.evaluate(done, state)
    for name, value in metrics.items():
        if name.startswith("test/") and not math.isfinite(value):
            remedy = REMEDY if name == "test/loss" else "compress less, or take another estimator"
            raise Diverged(f"round {done}: the {axis_name(name)} of the server's model is {value}; {remedy}")
    return metrics


def _means(metrics: Metrics) -> dict[str, float]:
    """The round's own metrics, those with one value a client as their mean; none of a round without clients."""
    return {name: float(value.mean()) for name, value in metrics.items()}
