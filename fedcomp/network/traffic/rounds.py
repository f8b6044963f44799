"""A round's legs in the one form that is recorded: a template, which rounds share, and what varies.

Legs of one phase (down, work, up), kind and receivers are added up, in the order in which they first came. Bits that
the layout decides are one number in the template; bits that depend on data vary. Gradients are one number where all
clients compute as many, a row of the template where the cohort has all clients, and else vary.

Shape legend: M clients of the cohort, N clients in all, L rows of a leg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedcomp.wire.legs import ALL, BROADCAST, COHORT, UP, WORK, Legs

DOWN_PHASE, WORK_PHASE, UP_PHASE = range(3)
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
    merged: list[tuple[int, object, list[int | np.ndarray]]] = []
    first, phase = 0, -1
    for leg in legs.made:
        amount = leg.amount
        assert isinstance(amount, (int, np.ndarray)), "an amount that is still on its device"
        if leg.kind == WORK and not np.any(amount):
            continue
        if phase_of(leg.kind) != phase:
            first, phase = len(merged), phase_of(leg.kind)
        for kind, who, amounts in merged[first:]:
            if kind == leg.kind and who == leg.who:
                amounts.append(amount)
                break
        else:
            merged.append((leg.kind, leg.who, [amount]))
    template, listed, varying = [], [], []
    whole = len(legs.clients) == num_clients
    for kind, who, amounts in merged:
        total = amounts[0] if len(amounts) == 1 else sum(amounts)
        to = TO_COHORT if who == COHORT else TO_ALL if who == ALL else TO_LISTED
        if isinstance(who, tuple):
            listed.append(who)
        if not isinstance(total, np.ndarray):
            template.append(TemplateLeg(kind, to, NUMBER, int(total)))
        elif kind == WORK and (total == total[0]).all():
            template.append(TemplateLeg(kind, to, NUMBER, int(total[0])))
        elif kind == WORK and whole and to == TO_COHORT:
            template.append(TemplateLeg(kind, to, ROW, -1, total.astype(np.int64).tobytes()))
        else:
            template.append(TemplateLeg(kind, to, VARYING, -1))
            varying.append(total.astype(np.int64))
    on_time = None if legs.late is None else ~legs.late
    return Round(tuple(template), legs.clients, tuple(listed), tuple(varying), on_time)


def phase_of(kind: int) -> int:
    """Down, work or up."""
    return UP_PHASE if kind == UP else WORK_PHASE if kind == WORK else DOWN_PHASE


def num_varying(leg: TemplateLeg, num_cohort: int, num_listed: int) -> int:
    """How many numbers a varying leg has in a round."""
    if leg.kind == BROADCAST:
        return 1
    return num_listed if leg.who == TO_LISTED else num_cohort
