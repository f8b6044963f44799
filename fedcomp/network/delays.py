"""What an exchange adds to clients' clocks, and a fast way to it for rounds on links that stay as they are.

`RoundDelays` goes over all N clients, leg by leg. `CohortDelays` is for networks whose links stay as they are and whose
messages go to each client by itself: it plans the sums of a template once, keeps the seconds of amounts that are the
same for all clients, and divides only those that vary, for the cohort alone. Both give the same bits, since each
client's seconds are made by the same operations.

Shape legend: N clients, L of them in an exchange: the cohort, or all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedcomp.network.exchanges import exchange_numbers
from fedcomp.network.links.contract import Links
from fedcomp.network.traffic.rounds import (
    DOWN_PHASE,
    NUMBER,
    PHASES,
    TO_ALL,
    TO_COHORT,
    UP_PHASE,
    VARYING,
    WORK_PHASE,
    Round,
    Template,
    TemplateLeg,
)
from fedcomp.wire.legs import BROADCAST, RELAY, XOR_RELAY

MAX_KEPT = 64
"""Entries of a cache of plans or of vectors, which is emptied when it is full: most methods have a few."""

Seconds = np.ndarray | None
Places = np.ndarray | None


@dataclass(frozen=True)
class Delays:
    """What an exchange adds to the clocks of those in it, in seconds.

    Attributes:
        who: [L] client numbers, ascending; None: all N.
        down, work, up: [L] delta_i, kappa_i G_i with o_i, and U_i / r_i^u + tau_i / 2 where nobody shares an uplink;
            None: nothing.
        touched: [L] who receives or works; None: all of them. senders: places of those who send up; None: all.
        once: (seconds of the server's line, receivers) of what is sent once for several, if `who` is None.
        shared: [N] bits up and own limits, for cells; None: there are none.
    """

    who: Places
    down: Seconds
    work: Seconds
    up: Seconds
    touched: np.ndarray | None
    senders: Places
    once: tuple[tuple[float, np.ndarray], ...] = ()
    shared: tuple[np.ndarray, np.ndarray] | None = None


class Sum(NamedTuple):
    """What the legs of one phase come to, for each of those in the exchange.

    Attributes:
        number: the same for each. row: [N] on top, of a template for all; None: no such leg.
        varying: on top, (place among the round's varying amounts, whether these are one number, of a broadcast).
    """

    number: int = 0
    row: np.ndarray | None = None
    varying: tuple[tuple[int, bool], ...] = ()

    def of(self, one: Round) -> int | np.ndarray:
        """An int, or int64 [L]."""
        total: Any = self.number if self.row is None else self.row + self.number
        for place, broadcast in self.varying:
            amounts = one.varying[place]
            more: Any = amounts.item(0) if broadcast else amounts
            total = more if isinstance(total, int) and not total else total + more
        return total


class Plan(NamedTuple):
    """One exchange of a template: whether all N clients are in it or the cohort, and the sums of its phases."""

    everyone: bool
    sums: tuple[Sum, Sum, Sum]


def plans(template: Template, whole: bool) -> list[Plan] | None:
    """The exchanges of a template; None: some leg is for `RoundDelays`.

    Args:
        whole: the cohort has all clients.
    """
    numbers = exchange_numbers(template)
    parts: list[list[tuple[int, TemplateLeg]]] = [[] for _ in range(max(numbers, default=-1) + 1)]
    place = 0  # among the round's varying amounts
    for number, leg in zip(numbers, template, strict=True):
        parts[number].append((place, leg))
        place += leg.form == VARYING
    found = []
    for legs in parts:
        who = {TO_ALL if whole and leg.who == TO_COHORT else leg.who for _, leg in legs}
        if len(who) > 1 or not who <= {TO_ALL, TO_COHORT} or any(leg.kind in (RELAY, XOR_RELAY) for _, leg in legs):
            return None
        down, work, up = (
            _sum([one for one in legs if PHASES[one[1].kind] == phase]) for phase in (DOWN_PHASE, WORK_PHASE, UP_PHASE)
        )
        found.append(Plan(who == {TO_ALL}, (down, work, up)))
    return found


def _sum(legs: list[tuple[int, TemplateLeg]]) -> Sum:
    rows = [np.frombuffer(leg.row, np.int64) for _, leg in legs if leg.row]
    return Sum(
        sum(leg.value for _, leg in legs if leg.form == NUMBER),
        sum(rows[1:], rows[0]) if rows else None,
        tuple((place, leg.kind == BROADCAST) for place, leg in legs if leg.form == VARYING),
    )


class CohortDelays:
    """The delays of rounds, where `plans` has them.

    Args:
        links: the clients'; nobody shares one, and nobody pays for a start. line: bits on the line, with headers.
    """

    def __init__(self, links: Links, line: Callable[[Any], Any]) -> None:
        self._links, self._line, self._half = links, line, links.rtt / 2
        self._rates = {DOWN_PHASE: links.down, UP_PHASE: links.up}
        self._works = bool(links.work.any())
        self._plans: dict[tuple[Template, bool], list[Plan] | None] = {}
        self._same: dict[tuple[int, int], np.ndarray] = {}

    def of(self, one: Round) -> list[Delays] | None:
        """What each exchange of a round adds; None: it is for `RoundDelays`."""
        whole = len(one.clients) == len(self._half)
        found = self._plans.get((one.template, whole), ...)
        if found is ...:
            found = _keep(self._plans, (one.template, whole), plans(one.template, whole))
        if found is None:
            return None
        cohort = None if whole else np.array(one.clients, np.int64)
        return [self._of(plan, one, None if plan.everyone else cohort) for plan in found]

    def _of(self, plan: Plan, one: Round, who: Places) -> Delays:
        num = len(self._half) if who is None else len(who)
        down, work, up = (one_sum.of(one) for one_sum in plan.sums)
        received, worked, sent = (_positive(amount, num) for amount in (down, work, up))
        touched = None if received is None or worked is None else received | worked
        return Delays(
            who,
            self._seconds(DOWN_PHASE, down, received, who),
            self._seconds(WORK_PHASE, work, worked, who),
            self._seconds(UP_PHASE, up, sent, who),
            None if touched is None or touched.all() else touched,
            None if sent is None else np.flatnonzero(sent),
        )

    def _seconds(self, phase: int, amount: int | np.ndarray, positive: np.ndarray | None, who: Places) -> Seconds:
        """[L] seconds of amounts, which are `positive` where it says so; None: everywhere."""
        if isinstance(amount, np.ndarray):
            return self._divided(phase, amount, positive, who)
        if not amount or (phase == WORK_PHASE and not self._works):
            return None
        found = self._same.get((phase, amount))
        if found is None:
            found = _keep(self._same, (phase, amount), self._divided(phase, amount, None, None))
        return found if who is None else found[who]

    def _divided(self, phase: int, amount: Any, positive: np.ndarray | None, who: Places) -> np.ndarray:
        here: Any = slice(None) if who is None else who
        if phase == WORK_PHASE:
            return np.asarray(self._links.work[here] * amount)
        seconds = self._line(amount) / self._rates[phase][here] + self._half[here]
        return np.asarray(seconds if positive is None else np.where(positive, seconds, 0.0))


def _positive(amount: int | np.ndarray, num: int) -> np.ndarray | None:
    """[L] where an amount is above 0; None: everywhere."""
    if isinstance(amount, int):
        return None if amount and num else np.zeros(num, bool)
    positive = amount > 0
    return None if num and positive.all() else positive


def _keep(store: dict[Any, Any], name: Any, value: Any) -> Any:
    """Put `value` into a cache and return it."""
    if len(store) >= MAX_KEPT:
        store.clear()
    store[name] = value
    return value
