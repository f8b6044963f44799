"""The run's record on disk, `metrics.jsonl`: one JSON line an evaluation.

A line counts once its newline is written, so a killed run leaves at most an unfinished last line, which every
reader drops. JSON knows no NaN: a value that is not finite is written as null, and `nonfinite` says what it was,

    {"round": 7, "test/loss": null, "nonfinite": {"test/loss": "nan"}}

so that jq and pandas read every column as numbers with gaps, and `read_lines` gives back exactly what was logged.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from numbers import Integral
from pathlib import Path

from fedcomp.records.atomic_write import AppendOnlyFile, explained

FILE = "metrics.jsonl"
NONFINITE = "nonfinite"
ACCURACY = re.compile(rb'"test/accuracy": ([-+.\deE]+)')

Metrics = Mapping[str, float | int]
"""One evaluation: `round`, `test/...`, `train/loss`, cumulative `bits/...`, `bpp/...`, `seconds`, method metrics."""
Line = dict[str, float | int]


class Record:
    """The writer's end of `metrics.jsonl`; one process a folder. Readers use `read_lines`.

    Args:
        folder: the run's folder, created if missing. A half-written last line of a killed run is cut off.

    Raises:
        ValueError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        with explained(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        self._file = AppendOnlyFile(self.path)

    def append(self, line: Metrics) -> None:
        """Write one evaluation and hand it to the operating system before returning.

        Raises ValueError: the disk is full, or as `check`.
        """
        self._file.append(encode(line))

    def truncate_after(self, round: int) -> list[Line]:
        """Drop, in one step, every line of a later round than the checkpoint's; -1 drops all.

        Returns:
            The lines kept.
        """
        kept = [line for line in read_lines(self.path) if line["round"] <= round] if round >= 0 else []
        self._file.replace(b"".join(encode(line) for line in kept))
        return kept

    @property
    def digest(self) -> str:
        """SHA-256 of the file's content, in hex digits."""
        return self._file.digest

    def check(self) -> None:
        """Raise ValueError: another process deleted or changed the file while the run was writing it."""
        self._file.check()


def encode(line: Metrics) -> bytes:
    """One line of the file, newline included; integers stay exact, floats round-trip."""
    plain: dict[str, object] = {}
    nonfinite: dict[str, str] = {}
    for key, value in line.items():
        number = int(value) if isinstance(value, Integral) else float(value)
        if math.isfinite(number):
            plain[key] = number
        else:
            plain[key] = None
            nonfinite[key] = str(number)
    if nonfinite:
        plain[NONFINITE] = nonfinite
    return json.dumps(plain, allow_nan=False).encode() + b"\n"


def read_lines(path: Path) -> list[Line]:
    """The evaluations in a `metrics.jsonl`, in the order written; [] for an empty file.

    Raises:
        ValueError: the file cannot be read, a line other than a half-written last one is no record, or rounds do not
            rise from line to line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    lines: list[Line] = []
    for number, raw in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            line = json.loads(raw)
            line.update({key: float(value) for key, value in line.pop(NONFINITE, {}).items()})
            line["round"] = int(line["round"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path}, line {number} is no record: {raw[:60]!r}; remove it to read the rest") from error
        if lines and line["round"] <= lines[-1]["round"]:
            raise ValueError(doubled(path, number, line["round"], lines[-1]["round"]))
        lines.append(line)
    return lines


def read_latest(path: Path) -> tuple[Line, float | None]:
    """The last whole line ({}: none), and the best test accuracy in the file, a fraction (None: none).

    Only the last line is parsed, so that thousands of records are read in a second.

    Raises:
        ValueError: the file cannot be read, or its last line is no record.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    best = max(map(float, ACCURACY.findall(content)), default=None)
    try:
        return (json.loads(lines[-1]) if lines else {}), best
    except ValueError as error:
        raise ValueError(f"{path}: the last line is no record: {lines[-1][:60]!r}") from error


def doubled(path: Path, number: int, round: float, before: float) -> str:
    """What is wrong with a file whose line `number` is of `round`, after one of round `before`."""
    return (
        f"{path}, line {number} is of round {round}, after a line of round {before}: a line is doubled or out of "
        "place; remove it, or start anew with overwrite=true"
    )


def check_complete(path: Path, found: Iterable[int], done: int, rounds: int, eval_every: int) -> None:
    """Raise ValueError unless the record of a run that has done `done` of its `rounds` rounds has every line.

    Args:
        path: the record. found: the rounds that it has lines of.
    """
    due = {0, *range(eval_every, done + 1, eval_every), *((done,) if done == rounds else ())}
    missing = sorted(due - set(found))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(
            f"{path} has no line of round {missing[0]}{more}, but the run was at round {done}: put the file back, or "
            "start anew with overwrite=true"
        )
