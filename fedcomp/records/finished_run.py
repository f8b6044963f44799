"""Whether a folder holds a run that has ended well."""

from __future__ import annotations

from pathlib import Path

from fedcomp.records.metrics_file import FILE as RECORD
from fedcomp.records.metrics_file import Line, check_complete, read_lines
from fedcomp.records.repetitions import FILE as REPETITIONS
from fedcomp.records.repetitions import read_repetitions
from fedcomp.records.status import read_status


def finished(folder: Path, rounds: int, eval_every: int, repeats: int = 1) -> list[Line] | None:
    """The record of a run of `rounds` rounds that ended well in this folder; None if there is still something to do.

    Raises:
        ValueError: status or record is broken; or a line is missing, so that the run is no result.
    """
    status, path = read_status(folder), folder / RECORD
    if status is None or status.state != "finished" or status.round != rounds:
        return None
    lines = read_lines(path) if path.exists() else []
    if not lines or lines[-1]["round"] != rounds:
        raise ValueError(
            f"the run is finished, but {path} has no line of its last round {rounds}: put the file back, or run again "
            f"with overwrite=true"
        )
    check_complete(path, [int(line["round"]) for line in lines], rounds, rounds, eval_every)
    if repeats > 1:
        check_complete(folder / REPETITIONS, read_repetitions(folder), rounds, rounds, eval_every)
    return lines
