"""What a session writes and shows: record, checkpoints, status, curve, tracker, progress. The main process alone does.

All processes of a run call the same methods at the same places; none of the methods talks to another process. So the
sequence of collectives cannot depend on who writes.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedcomp.display.curve_plot import plot_curve
from fedcomp.display.metric import main_metric
from fedcomp.display.progress import Progress
from fedcomp.display.slowest_plot import plot_slowest
from fedcomp.network.traffic import segments
from fedcomp.network.traffic.file import Traffic
from fedcomp.records import checkpoint as checkpoints
from fedcomp.records.atomic_write import sync
from fedcomp.records.checkpoint import Checkpoint
from fedcomp.records.digests import Digests, check_unchanged
from fedcomp.records.metrics_file import FILE as RECORD
from fedcomp.records.metrics_file import (
    REPETITIONS,
    Line,
    PerRepetition,
    Record,
    check_complete,
    read_lines,
    read_repetitions,
)
from fedcomp.records.run_folder import CHECKPOINT, CURVE, SLOWEST
from fedcomp.records.status import State, Status, write_status
from fedcomp.runtime.signals import Interrupted
from fedcomp.tracking.contract import RunInfo, Tracker
from fedcomp.training.error_location import summary

STATUS_SECONDS = 1.0
"""Least time between two writings of `status.json` while rounds go on."""


class Writer:
    """Writes nothing and shows nothing: the writer of every process but the main one. `progress`: for the user."""

    progress = Progress("quiet")

    def session(self, dim: int) -> contextlib.AbstractContextManager[None]:
        """Context manager around the session of a model of D = `dim` parameters: at its end, says how it ended."""
        return contextlib.nullcontext()

    def resume(self, first: Any, rounds: int, eval_every: int) -> Checkpoint | None:
        """The checkpoint from which the run goes on; None: it begins, or the main process reads it.

        Args:
            first: the state before the first round, whose shapes the checkpoint must have. rounds: of the run.
        Raises:
            ValueError: the checkpoint is damaged, or the record lacks a line before it.
        """
        return None

    def resume_traffic(self, done: int) -> Traffic | None:
        """What the first `done` rounds sent, None for 0. Raises ValueError: some of them are missing."""
        return None

    def traffic(self, segment: Traffic, last: int) -> None:
        """Write what the rounds up to `last` sent, before their checkpoint."""

    def start(self, done: int) -> None:
        """Drop lines after round `done`, and open the tracker."""

    def evaluation(self, line: Line, each: PerRepetition) -> None:
        """Write an evaluation's line, and the repetitions' own values."""

    def checkpoint(self, position: Checkpoint) -> None:
        """Write a checkpoint."""

    def slowest(self, counts: np.ndarray) -> None:
        """Draw how often the network waited for each client [N]."""

    def finish(self) -> None:
        """After the last checkpoint: remove older ones. Raises ValueError: another process changed the record."""

    def note(self, text: str) -> None:
        """Show the user a line."""

    def lines(self) -> list[Line]:
        """All lines of the record; none where it is broken or another process writes it."""
        return []


class FolderWriter(Writer):
    """Writes into the run's folder.

    Args:
        info: which run this is. tracker: a view beside the record. progress: for the user.
        pictures: whether the curve is drawn. started: callback that receives the number of rounds done at the start.
    """

    def __init__(
        self,
        info: RunInfo,
        tracker: Tracker,
        progress: Progress,
        pictures: bool = True,
        started: Callable[[int], object] | None = None,
    ) -> None:
        self.info, self.tracker, self.progress = info, tracker, progress
        self._pictures, self._started = pictures, started
        self._folder = info.folder
        self._tracked = False
        self._status_written = 0.0

    @contextlib.contextmanager
    def session(self, dim: int) -> Iterator[None]:
        """Write how the session ended: status, curve, tracker."""
        self._record, self._repetitions = Record(self._folder), Record(self._folder, REPETITIONS)
        state: State = "failed"
        error: str | None = None
        saved: int | None = None
        try:
            yield
            state = "finished"
        except Interrupted as interruption:
            state, error, saved = "interrupted", str(interruption), interruption.round
            raise
        except BaseException as failure:
            error = summary(failure)
            raise
        finally:
            lines = self.lines()
            done = int(lines[-1]["round"]) if lines else 0
            try:
                record = self._digests() if state == "finished" else {}
                write_status(self._folder, Status(state, done if saved is None else saved, error, record))
                self._draw(lines, dim)
            finally:
                if self._tracked:
                    self.tracker.finish(state, lines[-1] if lines else {})

    def resume(self, first: Any, rounds: int, eval_every: int) -> Checkpoint | None:
        start = checkpoints.resume(self._folder / CHECKPOINT, first, self.info.config_hash, self.progress.note)
        if start is None:
            if done := max((int(line["round"]) for line in self.lines()), default=0):
                self.progress.note(f"no checkpoint is left of the {done} rounds in {RECORD}: starting at round 0 again")
            return None
        found = {self._folder / RECORD: [int(line["round"]) for line in read_lines(self._folder / RECORD)]}
        if self.info.config.get("repeats", 1) > 1:
            found[self._folder / REPETITIONS] = list(read_repetitions(self._folder))
        for path, rounds_found in found.items():
            check_complete(path, rounds_found, start.round, rounds, eval_every)
        check_unchanged(self._folder, start.record, through=start.round)
        self.progress.note(f"resuming after round {start.round}")
        return start

    def start(self, done: int) -> None:
        for file in (self._record, self._repetitions):
            file.truncate_after(done if done else -1)
        if self._started is not None:
            self._started(done)
        self.tracker.start(self.info)
        self._tracked = True
        self._write_status(done)

    def resume_traffic(self, done: int) -> Traffic | None:
        return segments.resume(self._folder, done)

    def traffic(self, segment: Traffic, last: int) -> None:
        segments.write_segment(self._folder, segment, last)

    def evaluation(self, line: Line, each: PerRepetition) -> None:
        done = int(line["round"])
        if each:
            self._repetitions.append({"round": done, **each})
        self._record.append(line)
        self.tracker.log(line)
        self.progress.evaluated(line)
        if time.perf_counter() - self._status_written > STATUS_SECONDS:
            self._write_status(done)

    def checkpoint(self, position: Checkpoint) -> None:
        record = self._digests()
        for name in record:  # a checkpoint needs the lines before it, also after a loss of power
            sync(self._folder / name)
        checkpoints.save(self._folder / CHECKPOINT, replace(position, record=record), self.info.config_hash)
        self._write_status(position.round)

    def slowest(self, counts: np.ndarray) -> None:
        if self._pictures and counts.any():
            title = self.info.config.get("label") or self.info.name
            plot_slowest(counts, self._folder / SLOWEST, str(title))

    def finish(self) -> None:
        for file in (self._record, self._repetitions):
            file.check()
        segments.join(self._folder)
        checkpoints.drop_older(self._folder / CHECKPOINT)

    def note(self, text: str) -> None:
        self.info.note(text)

    def lines(self) -> list[Line]:
        try:
            return read_lines(self._record.path)
        except ValueError:  # which is then what the run failed of
            return []

    def _digests(self) -> Digests:
        digests = {RECORD: self._record.digest, REPETITIONS: self._repetitions.digest}
        return {name: digest for name, digest in digests.items() if (self._folder / name).exists()}

    def _write_status(self, done: int) -> None:
        write_status(self._folder, Status("running", done))
        self._status_written = time.perf_counter()

    def _draw(self, lines: list[Line], dim: int) -> None:
        if self._pictures and main_metric(lines) is not None:
            title = self.info.config.get("label") or self.info.name
            plot_curve(lines, self._folder / CURVE, str(title), dim)
