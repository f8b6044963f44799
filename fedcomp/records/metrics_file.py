"""The run's record on disk, `metrics.jsonl`: one JSON line an evaluation.

A study has means and variances there, and the values of each repetition in `repetitions.jsonl`.

A line counts once its newline is written, so a killed run leaves at most an unfinished last line, which every
reader drops. JSON knows no NaN: a value that is not finite is written as null, and `nonfinite` says what it was,

    {"round": 7, "test/loss": null, "nonfinite": {"test/loss": "nan"}}

so that jq and pandas read every column as numbers with gaps, and `read_lines` gives back exactly what was logged. In a
list, which has one value a repetition, null is NaN:

    {"round": 7, "test/loss": [0.31, 0.29, null], "optimum/0": [0.168]}
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any

from fedcomp.core.parse import parse_json
from fedcomp.records.atomic_write import explained, write_atomically

FILE, REPETITIONS = "metrics.jsonl", "repetitions.jsonl"
NONFINITE = "nonfinite"
ACCURACY = re.compile(rb'"test/accuracy": ([-+.\deE]+)')

Metrics = Mapping[str, float | int]
"""One evaluation: `round`, `test/...`, `train/loss`, cumulative `bits/...`, `bpp/...`, `seconds`, method metrics."""
Line = dict[str, float | int]
PerRepetition = dict[str, list[float]]
"""An evaluation of a study: one value a repetition, or a single one that all share."""


class Record:
    """The writer's end of one of the files; one process a folder. Readers use `read_lines` and `read_repetitions`.

    It keeps the expected size, and so notices a file that was deleted or changed.

    Args:
        folder: the run's folder, created if missing. A half-written last line of a killed run is cut off.
        file: the name of the file, which is created with its first line.

    Raises:
        ValueError: the folder cannot be written.
    """

    def __init__(self, folder: Path, file: str = FILE) -> None:
        self.path = folder / file
        self._size, self._sum = 0, hashlib.sha256()
        with explained(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                with self.path.open("rb+") as opened:
                    content = opened.read()
                    self._size = content.rfind(b"\n") + 1
                    self._sum.update(content[: self._size])
                    opened.truncate(self._size)

    def append(self, line: Mapping[str, float | int | Sequence[float]]) -> None:
        """Write one evaluation and hand it to the operating system before returning.

        Raises ValueError: the disk is full, or as `check`.
        """
        self.check()
        data = encode(line)
        with explained(self.path), self.path.open("ab") as file:
            file.write(data)
        self._size += len(data)
        self._sum.update(data)

    def truncate_after(self, round: int) -> None:
        """Drop, in one step, every line of a later round than the checkpoint's; -1 drops all."""
        if self.path.exists():
            kept = [line for line in read_lines(self.path) if line["round"] <= round] if round >= 0 else []
            content = b"".join(map(encode, kept))
            write_atomically(self.path, content)
            self._size, self._sum = len(content), hashlib.sha256(content)

    @property
    def digest(self) -> str:
        """SHA-256 of the file's content, in hex digits."""
        return self._sum.hexdigest()

    def check(self) -> None:
        """Raise ValueError: another process deleted or changed the file while the run was writing it."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            if self._size == 0:
                return
            size = None
        if size != self._size:
            what = "deleted" if size is None else "changed by another process"
            raise ValueError(
                f"{self.path} was {what} while the run was running, so its record is no longer whole: put the file "
                "back, or start anew with overwrite=true"
            )


def encode(line: Mapping[str, float | int | Sequence[float]]) -> bytes:
    """One line of the file, newline included; integers stay exact, floats round-trip."""
    plain: dict[str, object] = {}
    nonfinite: dict[str, str] = {}
    for key, value in line.items():
        if isinstance(value, Sequence):
            plain[key] = [one if math.isfinite(one) else None for one in value]
            continue
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
    """The evaluations in a `metrics.jsonl`, in the order written; [] for an empty file, or if there is none.

    Raises:
        ValueError: the file cannot be read, a line other than a half-written last one is no record, or rounds do not
            rise from line to line.
    """
    lines: list[Line] = []
    for number, raw in enumerate(_content(path).split(b"\n")[:-1], start=1):
        line = _parsed(path, number, raw)
        if lines and line["round"] <= lines[-1]["round"]:
            raise ValueError(
                f"{path}, line {number} is of round {line['round']}, after a line of round {lines[-1]['round']}: a "
                "line is doubled or out of place; remove it, or start anew with overwrite=true"
            )
        lines.append(line)
    return lines


def comparable(line: Line) -> dict[str, float | int | None]:
    """A line without its seconds, which differ from run to run; NaN is None, which is equal to itself."""
    return {name: None if value != value else value for name, value in line.items() if name != "seconds"}


def read_repetitions(folder: Path) -> dict[int, PerRepetition]:
    """{round: {metric: one value a repetition}}; {} for a run without repetitions. Raises as `read_lines`."""
    lines: Sequence[dict[str, Any]] = read_lines(folder / REPETITIONS)
    return {line.pop("round"): line for line in lines}


def read_latest(path: Path) -> tuple[Line, float | None]:
    """The last whole line ({}: none), and the best test accuracy of the whole lines, a fraction (None: none).

    Only the last line is parsed, so that thousands of records are read in a second.

    Raises:
        ValueError: the file cannot be read, or its last line is no record.
    """
    content = _content(path)
    whole = content[: content.rfind(b"\n") + 1]
    best = max(map(float, ACCURACY.findall(whole)), default=None)
    return (_parsed(path, whole.count(b"\n"), whole.splitlines()[-1]) if whole else {}), best


def check_complete(path: Path, found: Iterable[int], done: int, rounds: int, eval_every: int) -> None:
    """Raise ValueError unless the record of a run that has done `done` of its `rounds` rounds has every line.

    Args:
        path: the record. found: the rounds that it has lines of.
    """
    have, due = set(found), range(0, done + 1, eval_every)
    last = (done,) if done == rounds and done not in due else ()
    missing = len(due) + len(last) - sum(one in due or one in last for one in have)
    if missing:
        first = next(one for one in chain(due, last) if one not in have)
        more = f" and {missing - 1} more" if missing > 1 else ""
        raise ValueError(
            f"{path} has no line of round {first}{more}, but the run was at round {done}: put the file back, or "
            "start anew with overwrite=true"
        )


def _content(path: Path) -> bytes:
    """Of the file; nothing if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error


def _parsed(path: Path, number: int, raw: bytes) -> Line:
    """Line `number` of the file. Raises ValueError: it is no record."""
    try:
        line: dict[str, Any] = parse_json(raw)
        line.update({key: float(value) for key, value in line.pop(NONFINITE, {}).items()})
        line.update({key: list(map(_float, value)) for key, value in line.items() if isinstance(value, list)})
        line["round"] = int(line["round"])
        if not 0 <= line["round"] < 2**63:
            raise ValueError("no number of rounds")
        kind = list if path.name == REPETITIONS else int | float
        if not all(isinstance(value, kind) for key, value in line.items() if key != "round"):
            raise TypeError("a value is no number")
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path}, line {number} is no record: {raw[:60]!r}; remove it to read the rest") from error
    return line


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)
