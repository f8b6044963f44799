"""A round's legs in the one form that is recorded: a template, which rounds share, and what varies.

Legs of one phase (down, work, up), kind and receivers are added up, in the order in which they first came. Bits that
the layout decides are one number in the template; bits that depend on data vary. Gradients are one number where all
clients compute as many, a row of the template where the cohort has all clients, and else vary.

Shape legend: M clients of the cohort, L rows of a leg.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedcomp.wire.legs import ALL, BROADCAST, COHORT, RELAY, UNICAST, UP, WORK, XOR_RELAY, Amount, Legs, Who

DOWN_PHASE, WORK_PHASE, UP_PHASE = range(3)
PHASES = dict.fromkeys((UNICAST, BROADCAST, RELAY, XOR_RELAY), DOWN_PHASE) | {WORK: WORK_PHASE, UP: UP_PHASE}
TO_COHORT, TO_ALL, TO_LISTED = range(3)
NUMBER, ROW, VARYING = range(3)


class TemplateLeg(NamedTuple):
    """One leg of a template.

    Attributes:
        kind: as in `wire/legs.py`. who: cohort, all or listed. form: number, row or varying.
        value: bits or gradients of each row, of a broadcast in all; -1 for other forms.
        row: the bytes of int64 [L] of form `ROW`; empty for others.
    """

    kind: int
    who: int
    form: int
    value: int
    row: bytes = b""


Template = tuple[TemplateLeg, ...]


@dataclass(frozen=True)
class Round:
    """One round.

    Attributes:
        template: its legs. clients: of the cohort, ascending.
        listed: the clients of each leg to listed ones. varying: int64 [L] of each varying leg, [1] of a broadcast.
        on_time: [M] bool who met the deadline; None: there is none.
    """

    template: Template
    clients: tuple[int, ...]
    listed: tuple[tuple[int, ...], ...] = ()
    varying: tuple[np.ndarray, ...] = ()
    on_time: np.ndarray | None = None


def round_of(legs: Legs, num_clients: int) -> Round:
    """The recorded form of legs whose amounts are on the host."""
    merged: list[tuple[int, Who, list[Amount]]] = []
    first, phase = 0, -1
    for kind, who, amount in legs.made:
        assert isinstance(amount, (int, np.ndarray)), "an amount that is still on its device"
        if kind == WORK and not np.count_nonzero(amount):
            continue
        if PHASES[kind] != phase:
            first, phase = len(merged), PHASES[kind]
        own = [amounts for earlier, whose, amounts in merged[first:] if (earlier, whose) == (kind, who)]
        if own:
            own[0].append(amount)
        else:
            merged.append((kind, who, [amount]))
    template, listed, varying = [], [], []
    whole = len(legs.clients) == num_clients
    for kind, who, amounts in merged:
        total = _sum(amounts)
        to = TO_COHORT if who == COHORT else TO_ALL if who == ALL else TO_LISTED
        if isinstance(who, tuple):
            listed.append(who)
        if isinstance(total, int):
            template.append(TemplateLeg(kind, to, NUMBER, total))
        elif kind == WORK and len(total) and (total == total[0]).all():
            template.append(TemplateLeg(kind, to, NUMBER, total.item(0)))
        elif kind == WORK and whole and to == TO_COHORT:
            template.append(TemplateLeg(kind, to, ROW, -1, total.tobytes()))
        else:
            template.append(TemplateLeg(kind, to, VARYING, -1))
            varying.append(total)
    on_time = None if legs.late is None else ~legs.late
    return Round(tuple(template), legs.clients, tuple(listed), tuple(varying), on_time)


def _sum(amounts: Sequence[Amount]) -> Any:
    """An int, or int64 [L] if one of them is an array."""
    total = amounts[0] if len(amounts) == 1 else sum(amounts)
    return total.astype(np.int64) if isinstance(total, np.ndarray) else int(total)
