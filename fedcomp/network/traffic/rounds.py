"""A round's legs in the one form that is recorded: a template, which rounds share, and what varies.

Legs of one phase (down, work, up), kind and receivers are added up, in the order in which they first came. Bits that
the layout decides are one number in the template; bits that depend on data vary. Gradients are one number where all
clients compute as many, a row of the template where the cohort has all clients, and else vary.

Shape legend: M clients of the cohort, N clients in all, L rows of a leg.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

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


class RoundForms:
    """The recorded form of one round after another: most are like the one before, and few templates differ.

    Args:
        num_clients: N.
    """

    def __init__(self, num_clients: int) -> None:
        self.num_clients = num_clients
        self._templates: dict[Template, Template] = {}
        self._last: tuple[Legs, Round] | None = None

    def of(self, legs: Legs) -> Round:
        """As `round_of`, with the template of earlier rounds that have the same."""
        if self._last is not None and _alike(legs, self._last[0]):
            before = self._last[1]
            one = Round(before.template, legs.clients, before.listed, before.varying, _on_time(legs))
        else:
            one = round_of(legs, self.num_clients)
            one = replace(one, template=self._templates.setdefault(one.template, one.template))
        self._last = legs, one
        return one


def round_of(legs: Legs, num_clients: int) -> Round:
    """The recorded form of legs whose amounts are on the host."""
    merged: list[tuple[int, Who, list[int | np.ndarray]]] = []
    first, phase = 0, -1
    for kind, who, amount in legs.made:
        assert isinstance(amount, (int, np.ndarray)), "an amount that is still on its device"
        if kind == WORK and not np.count_nonzero(amount):
            continue
        if PHASES[kind] != phase:
            first, phase = len(merged), PHASES[kind]
        for earlier, whose, amounts in merged[first:]:
            if earlier == kind and whose == who:
                amounts.append(amount)
                break
        else:
            merged.append((kind, who, [amount]))
    template, listed, varying = [], [], []
    whole = len(legs.clients) == num_clients
    for kind, who, amounts in merged:
        total = amounts[0] if len(amounts) == 1 else sum(amounts)
        to = TO_COHORT if who == COHORT else TO_ALL if who == ALL else TO_LISTED
        if isinstance(who, tuple):
            listed.append(who)
        if not isinstance(total, np.ndarray):
            template.append(TemplateLeg(kind, to, NUMBER, int(total)))
            continue
        each = total.astype(np.int64)
        row = each.tobytes()
        if kind == WORK and row == row[: each.itemsize] * len(each):
            template.append(TemplateLeg(kind, to, NUMBER, each.item(0)))
        elif kind == WORK and whole and to == TO_COHORT:
            template.append(TemplateLeg(kind, to, ROW, -1, row))
        else:
            template.append(TemplateLeg(kind, to, VARYING, -1))
            varying.append(each)
    return Round(tuple(template), legs.clients, tuple(listed), tuple(varying), _on_time(legs))


def _alike(one: Legs, other: Legs) -> bool:
    """Whether two rounds have the same legs with the same amounts."""
    if len(one.made) != len(other.made) or len(one.clients) != len(other.clients):
        return False
    for (kind, who, amount), (earlier, whose, before) in zip(one.made, other.made):
        if kind != earlier or who != whose or _content(amount) != _content(before):
            return False
    return True


def _content(amount: Amount) -> int | bytes:
    assert isinstance(amount, (int, np.ndarray)), "an amount that is still on its device"
    return amount if isinstance(amount, int) else amount.tobytes()


def _on_time(legs: Legs) -> np.ndarray | None:
    return None if legs.late is None else ~legs.late


def num_varying(leg: TemplateLeg, num_cohort: int, num_listed: int) -> int:
    """How many numbers a varying leg has in a round."""
    if leg.kind == BROADCAST:
        return 1
    return num_listed if leg.who == TO_LISTED else num_cohort
