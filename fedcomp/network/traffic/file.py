"""`traffic.npz`: every round's template and what varies, from which the times under any network follow.

    version, num_clients    int32                1, N
    round_template          int32 [K]            which template; [R, K] of R repetitions
    leg_start               int32 [T + 1]        a template's legs
    leg_kind                uint8                0 unicast, 1 broadcast, 2 relay, 3 relay by XOR, 4 work, 5 up
    leg_who                 uint8                0 cohort, 1 all N, 2 listed (who_start, who_ids, by occurrence)
    leg_form                uint8                0 one number for all, 1 a row of the dictionary, 2 varying
    leg_value               int64                the number; the dictionary's row; -1
    row_start, row_values   int64                distinct rows, in the order of their first use
    vary_low                int64                by occurrence (repetition, round, leg): the smallest
    vary_delta              uint16, 32 or 64     each client's above it; nothing for a broadcast
    cohort_mask             uint8 [K, N / 8]     who took part, [R, K, N / 8] of repetitions; [0]: all, always
    on_time_mask            as above             with a deadline alone: who was on time
    deadline                float64              the same: seconds

For a broadcast the number is the bits of its messages together, for a relay those of each client's own message. Rows
are in the order of the cohort. The file depends on its content alone.

Shape legend: K rounds, T templates, R repetitions, N clients.
"""

import itertools
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedcomp.network.traffic.rounds import ROW, TO_LISTED, VARYING, Round, Template, TemplateLeg
from fedcomp.records.atomic_write import atomic_path
from fedcomp.wire.legs import BROADCAST

FILE, VERSION = "traffic.npz", 1


@dataclass(frozen=True)
class Traffic:
    """The rounds of a run.

    Attributes:
        num_clients: N. rounds: of each repetition; a run without repetitions is one.
        repeated: whether it is a study. deadline: seconds; None: there is none.
    """

    num_clients: int
    rounds: tuple[tuple[Round, ...], ...]
    repeated: bool = False
    deadline: float | None = None

    @property
    def num_rounds(self) -> int:
        """K."""
        return len(self.rounds[0])

    def first(self, num: int) -> "Traffic":
        """The first `num` rounds."""
        return replace(self, rounds=tuple(one[:num] for one in self.rounds))


def joined(parts: Sequence[Traffic]) -> Traffic:
    """The rounds of all parts, one after another."""
    repetitions = zip(*(part.rounds for part in parts), strict=True)
    rounds = tuple(tuple(itertools.chain.from_iterable(one)) for one in repetitions)
    return replace(parts[0], rounds=rounds)


def save(path: Path, traffic: Traffic) -> None:
    """Write the file in one step. Raises ValueError: it cannot be written."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **_arrays(traffic))


def load(path: Path) -> Traffic:
    """Read a file. Raises ValueError: it cannot be read, is damaged, or is of another version."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or 'it is damaged'}") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: run again with overwrite=true") from error
    if int(arrays.get("version", -1)) != VERSION:
        raise ValueError(f"{path} is of version {arrays.get('version')}, not {VERSION}: read it with its own fedcomp")
    try:
        return _traffic(arrays)
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"{path} is damaged: run again with overwrite=true") from error


def _arrays(traffic: Traffic) -> dict[str, Any]:
    templates: dict[Template, int] = {}
    rows: dict[bytes, int] = {}
    every = [one for rounds in traffic.rounds for one in rounds]
    numbers = [templates.setdefault(one.template, len(templates)) for one in every]
    legs = [leg for template in templates for leg in template]
    values = [rows.setdefault(leg.row, len(rows)) if leg.form == ROW else leg.value for leg in legs]
    contents = [np.frombuffer(row, np.int64) for row in rows]
    listed = [who for one in every for who in one.listed]
    low, delta = _varying(every)
    shape = (len(traffic.rounds), traffic.num_rounds) if traffic.repeated else (traffic.num_rounds,)
    arrays: dict[str, Any] = {
        "version": np.int32(VERSION),
        "num_clients": np.int32(traffic.num_clients),
        "round_template": np.array(numbers, np.int32).reshape(shape),
        "leg_start": _starts([len(template) for template in templates], np.int32),
        "leg_kind": np.array([leg.kind for leg in legs], np.uint8),
        "leg_who": np.array([leg.who for leg in legs], np.uint8),
        "leg_form": np.array([leg.form for leg in legs], np.uint8),
        "leg_value": np.array(values, np.int64),
        "row_start": _starts([len(row) for row in contents], np.int64),
        "row_values": _joined(contents, np.int64),
        "who_start": _starts([len(who) for who in listed], np.int64),
        "who_ids": _joined([np.array(who, np.int32) for who in listed], np.int32),
        "vary_low": low,
        "vary_delta": delta,
        "cohort_mask": _masks(traffic, [one.clients for one in every]),
    }
    if traffic.deadline is not None:
        on_time = [tuple(np.array(one.clients, np.int64)[one.on_time].tolist()) for one in every]
        arrays["on_time_mask"] = _masks(traffic, on_time)
        arrays["deadline"] = np.float64(traffic.deadline)
    return arrays


def _varying(every: Sequence[Round]) -> tuple[np.ndarray, np.ndarray]:
    low, deltas = [], []
    for one in every:
        kinds = [leg.kind for leg in one.template if leg.form == VARYING]
        for kind, values in zip(kinds, one.varying, strict=True):
            low.append(int(values.min(initial=0 if not len(values) else values[0])))
            if kind != BROADCAST:
                deltas.append(values - low[-1])
    delta = _joined(deltas, np.int64)
    largest = int(delta.max(initial=0))
    kind_of = np.uint16 if largest < 1 << 16 else np.uint32 if largest < 1 << 32 else np.uint64
    return np.array(low, np.int64), delta.astype(kind_of)


def _masks(traffic: Traffic, clients: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Bits of who is among them; [0] where all clients are, always."""
    num = traffic.num_clients
    if all(len(one) == num for one in clients):
        return np.zeros(0, np.uint8)
    mask = np.zeros((len(clients), num), bool)
    for row, one in zip(mask, clients):
        row[list(one)] = True
    packed = np.packbits(mask, axis=1)
    return packed.reshape(len(traffic.rounds), traffic.num_rounds, -1) if traffic.repeated else packed


def _traffic(arrays: dict[str, np.ndarray]) -> Traffic:
    num = int(arrays["num_clients"])
    templates, numbers = _templates(arrays), arrays["round_template"]
    repeated = numbers.ndim == 2
    numbers = numbers if repeated else numbers[None]
    total = numbers.size
    cohorts = _clients(arrays["cohort_mask"], total, num)
    on_time = _clients(arrays["on_time_mask"], total, num) if "on_time_mask" in arrays else None
    low, delta = iter(arrays["vary_low"].tolist()), arrays["vary_delta"].astype(np.int64)
    who = np.split(arrays["who_ids"], arrays["who_start"][1:-1]) if len(arrays["who_start"]) > 1 else []
    lists = iter([tuple(one.tolist()) for one in who])
    used, every = 0, []
    for place, number in enumerate(numbers.reshape(-1).tolist()):
        template, clients, listed, varying = templates[number], cohorts[place], [], []
        for leg in template:
            if leg.who == TO_LISTED:
                listed.append(next(lists))
            if leg.form == VARYING:
                if leg.kind == BROADCAST:
                    varying.append(np.array([next(low)], np.int64))
                else:
                    size = len(listed[-1] if leg.who == TO_LISTED else clients)
                    varying.append(next(low) + delta[used : used + size])
                    used += size
        met = None if on_time is None else np.isin(clients, on_time[place])
        every.append(Round(template, clients, tuple(listed), tuple(varying), met))
    count = numbers.shape[1]
    rounds = tuple(tuple(every[first : first + count]) for first in range(0, total, max(count, 1)))
    deadline = float(arrays["deadline"]) if "deadline" in arrays else None
    return Traffic(num, rounds or ((),) * len(numbers), repeated, deadline)


def _templates(arrays: dict[str, np.ndarray]) -> list[Template]:
    bounds = arrays["row_start"]
    rows = [arrays["row_values"][first:last].tobytes() for first, last in pairwise(bounds)]
    columns = [arrays[f"leg_{name}"].tolist() for name in ("kind", "who", "form", "value")]
    legs = [
        TemplateLeg(kind, who, form, -1 if form == ROW else value, rows[value] if form == ROW else b"")
        for kind, who, form, value in zip(*columns, strict=True)
    ]
    starts = arrays["leg_start"].tolist()
    return [tuple(legs[first:last]) for first, last in pairwise(starts)]


def _clients(mask: np.ndarray, total: int, num: int) -> list[tuple[int, ...]]:
    if not mask.size:
        return [tuple(range(num))] * total
    bits = np.unpackbits(mask.reshape(total, -1), axis=1, count=num)
    return [tuple(np.flatnonzero(row).tolist()) for row in bits]


def _starts(lengths: Sequence[int], kind: Any) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths))).astype(kind)


def _joined(parts: Sequence[np.ndarray], kind: Any) -> np.ndarray:
    return np.concatenate(parts).astype(kind) if parts else np.zeros(0, kind)
