"""The curve of each repetition of a study, `repetitions.jsonl`: one JSON line an evaluation, a list a metric.

    {"round": 7, "test/loss": [0.31, 0.29, ...], "theta/0": [...], "optimum/0": [0.168]}

Beside `metrics.jsonl`, which holds means and variances, and under its rules: a line counts once its newline is written.
What is not finite is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedcomp.records.atomic_write import AppendOnlyFile, explained
from fedcomp.records.metrics_file import doubled

FILE = "repetitions.jsonl"

PerRepetition = dict[str, list[float]]


class Repetitions:
    """The writer's end; readers use `read_repetitions`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._file = AppendOnlyFile(self.path)

    def append(self, round: int, each: Mapping[str, Sequence[float]]) -> None:
        """Write one evaluation; nothing for a run without repetitions. Raises ValueError: disk full, or as `check`."""
        if not each:
            return
        plain = {name: [value if math.isfinite(value) else None for value in values] for name, values in each.items()}
        self._file.append(json.dumps({"round": round, **plain}, allow_nan=False).encode() + b"\n")

    def truncate_after(self, round: int) -> None:
        """Drop, in one step, every line of a later round, and a half-written one; -1 drops all."""
        if self.path.exists():
            lines = _whole_lines(self.path) if round >= 0 else []
            kept = [raw for raw in lines if json.loads(raw)["round"] <= round]
            self._file.replace(b"".join(raw + b"\n" for raw in kept))

    @property
    def digest(self) -> str:
        """SHA-256 of the file's content, in hex digits."""
        return self._file.digest

    def check(self) -> None:
        """Raise ValueError: another process deleted or changed the file while the run was writing it."""
        self._file.check()


def read_repetitions(folder: Path) -> dict[int, PerRepetition]:
    """{round: {metric: one value a repetition}}; {} for a run without repetitions.

    Raises:
        ValueError: the file cannot be read, a line is no record, or rounds do not rise from line to line.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    found: dict[int, PerRepetition] = {}
    before = -1
    for number, raw in enumerate(_whole_lines(path), start=1):
        try:
            line = json.loads(raw)
            done = int(line.pop("round"))
            found[done] = {
                str(name): [math.nan if value is None else float(value) for value in values]
                for name, values in line.items()
            }
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path}, line {number} is no record: {raw[:60]!r}; remove it to read the rest") from error
        if done <= before:
            raise ValueError(doubled(path, number, done, before))
        before = done
    return found


def _whole_lines(path: Path) -> list[bytes]:
    with explained(path):
        return path.read_bytes().split(b"\n")[:-1]
