"""A round's legs in the one form that is recorded: a template, which rounds share, and what varies.

Legs of one phase (down, work, up), kind and receivers are added up, in the order in which they first came. Bits that
the layout decides are one number in the template; bits that depend on data vary. Gradients are one number where all
clients compute as many, a row of the template where the cohort has all clients, and else vary.

Shape legend: M clients of the cohort, N clients in all, L rows of a leg.
"""

from __future__ import annotations

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
Shape = tuple[bool, tuple[tuple[int, Who, Any], ...]]
Groups = tuple[tuple[int, ...], ...]
"""The places of the legs that add up to each varying one."""


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
        self._last: tuple[Shape, Round, Groups] | None = None

    def of(self, legs: Legs) -> Round:
        """As `round_of`. Equal templates are one object, and a round that equals the one before is that round."""
        shape = _shape(legs, self.num_clients)
        if shape is not None and self._last is not None and shape == self._last[0]:
            _, before, groups = self._last
            if not groups and legs.late is None and before.on_time is None and legs.clients == before.clients:
                return before
            varying = tuple(_sum([legs.made[place].amount for place in group]) for group in groups)
            one = Round(before.template, legs.clients, before.listed, varying, _on_time(legs))
        else:
            one, groups = _formed(legs, self.num_clients)
            template = self._templates.setdefault(one.template, one.template)
            one = Round(template, one.clients, one.listed, one.varying, one.on_time)
        self._last = None if shape is None else (shape, one, groups)
        return one


def round_of(legs: Legs, num_clients: int) -> Round:
    """The recorded form of legs whose amounts are on the host."""
    return _formed(legs, num_clients)[0]


def _formed(legs: Legs, num_clients: int) -> tuple[Round, Groups]:
    """The recorded form, and which legs add up to each varying one."""
    merged: list[tuple[int, Who, list[int]]] = []
    first, phase = 0, -1
    for place, (kind, who, amount) in enumerate(legs.made):
        if kind == WORK and not np.count_nonzero(_on_host(amount)):
            continue
        if PHASES[kind] != phase:
            first, phase = len(merged), PHASES[kind]
        for earlier, whose, places in merged[first:]:
            if earlier == kind and whose == who:
                places.append(place)
                break
        else:
            merged.append((kind, who, [place]))
    template, listed, varying, groups = [], [], [], []
    whole = len(legs.clients) == num_clients
    for kind, who, places in merged:
        total = _sum([legs.made[place].amount for place in places])
        to = TO_COHORT if who == COHORT else TO_ALL if who == ALL else TO_LISTED
        if isinstance(who, tuple):
            listed.append(who)
        if isinstance(total, int):
            template.append(TemplateLeg(kind, to, NUMBER, total))
        elif kind == WORK and (same := _same(total)) is not None:
            template.append(TemplateLeg(kind, to, NUMBER, same))
        elif kind == WORK and whole and to == TO_COHORT:
            template.append(TemplateLeg(kind, to, ROW, -1, total.tobytes()))
        else:
            template.append(TemplateLeg(kind, to, VARYING, -1))
            varying.append(total)
            groups.append(tuple(places))
    return Round(tuple(template), legs.clients, tuple(listed), tuple(varying), _on_time(legs)), tuple(groups)


def _shape(legs: Legs, num_clients: int) -> Shape | None:
    """What the template and `listed` follow from: rounds of one shape differ in what varies alone. None: unknown."""
    whole = len(legs.clients) == num_clients
    if all(type(leg.amount) is int for leg in legs.made):
        return whole, tuple(legs.made)
    shape, several = [], set[Who]()
    for kind, who, found in legs.made:
        amount = _on_host(found)
        content: int | bytes | None = None  # of what varies nothing is looked at
        if isinstance(amount, int):
            content = amount
        elif kind == WORK:
            if not whole and who in several:  # whether their sum is the same for all is not known
                return None
            several.add(who)
            content = amount.tobytes() if whole else _same(amount)
        if kind != WORK:
            several.clear()
        shape.append((kind, who, content))
    return whole, tuple(shape)


def _sum(amounts: Sequence[Amount]) -> Any:
    """An int, or int64 [L] if one of them is an array."""
    total = amounts[0] if len(amounts) == 1 else sum(amounts)
    return total.astype(np.int64) if isinstance(total, np.ndarray) else int(total)


def _same(amounts: np.ndarray) -> int | None:
    """The number that all are; None: they differ."""
    row = amounts.tobytes()
    return amounts.item(0) if len(amounts) and row == row[: amounts.itemsize] * len(amounts) else None


def _on_host(amount: Amount) -> int | np.ndarray:
    assert isinstance(amount, (int, np.ndarray)), "an amount that is still on its device"
    return amount


def _on_time(legs: Legs) -> np.ndarray | None:
    return None if legs.late is None else ~legs.late


def num_varying(leg: TemplateLeg, num_cohort: int, num_listed: int) -> int:
    """How many numbers a varying leg has in a round."""
    if leg.kind == BROADCAST:
        return 1
    return num_listed if leg.who == TO_LISTED else num_cohort
