"""The clock against the rules of docs/network.md, written out client by client, on random rounds of random legs."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from fedcomp.core.cohort import Cohort
from fedcomp.network.cell import shared_uplink
from fedcomp.network.deadline import Deadline
from fedcomp.network.traffic.rounds import round_of
from fedcomp.random.keys import Key
from fedcomp.wire.legs import ALL, BROADCAST, COHORT, RELAY, UNICAST, UP, WORK, XOR_RELAY, Leg, Legs
from tests.looped import looped
from tests.network.two_clients import MBIT, clock

NUM = 6
HEADER = {"message": 22, "packet": 40, "payload": 1460}
DOWN = (UNICAST, BROADCAST, RELAY, XOR_RELAY)
KEY = Key(("run", 0))
"""Of the runs of `clock`."""


@dataclass
class PlainClock:
    """S as `server`, R_i as `ready`; `late`: who misses the deadline of this round."""

    rates: tuple[tuple[float, ...], ...]
    options: dict[str, Any]
    server: float = 0.0
    channel: float = 0.0
    rounds: int = 0
    ready: list[float] = field(default_factory=lambda: [0.0] * NUM)
    late: frozenset[int] = frozenset()

    def advance(self, legs: Legs) -> None:
        """Add a round."""
        begin, starting = self.server, True
        for number, exchange in enumerate(_exchanges(legs)):
            gone = self.late if number else frozenset()
            down, once, work, up = self._amounts(exchange, legs, gone)
            received = [max(self.server, ready) for ready in self.ready]
            for bits, who in once:
                self.channel = max(self.server, self.channel) + self._line(bits) / min(self._rate(i)[0] for i in who)
                for i in who:
                    received[i] = max(received[i], self.channel + self.rates[i][2] / 2)
            touched = {i for _, who in once for i in who} | {i for i in range(NUM) if down[i] or work[i]}
            for i in range(NUM):
                received[i] += self._line(down[i]) / self._rate(i)[0] + self.rates[i][2] / 2 if down[i] else 0.0
            start = self.options.get("start_s", 0.0) if starting else 0.0
            worked = [received[i] + self.rates[i][3] * work[i] + start * bool(work[i]) for i in range(NUM)]
            starting = starting and not any(work)
            for i in touched:
                self.ready[i] = worked[i]
            there = self._sent(worked, up)
            if in_time := [there[i] for i in range(NUM) if up[i] and i not in self.late]:
                self.server = max(in_time)
            if any(up) and self.late:
                self.server = begin + self.options["deadline"]
                for i in self.late:
                    self.ready[i] = self.server
        if self.options.get("trailing") == "wait":
            self.server = max([self.server, *(self.ready[i] for i in legs.clients)])
        self.rounds += 1

    def _sent(self, worked: list[float], up: list[int]) -> list[float]:
        """When each client's messages are there."""
        there, capacity, cells = list(worked), self.options.get("capacity_bps"), self.options.get("cells", 1)
        for cell in range(cells):
            who = [i for i in range(NUM) if up[i] and i % cells == cell]
            ends = [worked[i] + self._line(up[i]) / self._rate(i)[1] for i in who]
            if capacity is not None and who:  # tests/network/test_clock.py checks these
                parts = ([worked[i] for i in who], [self._line(up[i]) for i in who], [self._rate(i)[1] for i in who])
                ends = shared_uplink(*(np.array(part, dtype=float) for part in parts), capacity).tolist()
            for i, end in zip(who, ends, strict=True):
                there[i] = end + self.rates[i][2] / 2
        return there

    def _amounts(self, exchange: list[Leg], legs: Legs, gone: frozenset[int]) -> tuple[list, list, list, list]:
        """Bits down by client, (bits, receivers) of what goes once, gradients and bits up by client."""
        down, work, up, multicast = [0] * NUM, [0] * NUM, [0] * NUM, self.options.get("down") == "multicast"
        # Messages of one kind to the same clients are one transmission, unless clients compute between them.
        once: dict[Any, tuple[int, list[int]]] = {}
        phase = 0
        for kind, who, amount in exchange:
            phase += kind == WORK
            ids = list(range(NUM)) if who == ALL else list(legs.clients if who == COHORT else who)
            each = np.broadcast_to(amount, len(ids)).tolist() if ids else []
            if who == COHORT and kind in DOWN:
                each = [bits for i, bits in zip(ids, each, strict=True) if i not in gone]
                ids = [i for i in ids if i not in gone]
            if kind in (WORK, UP, UNICAST):
                to = {WORK: work, UP: up, UNICAST: down}[kind]
                for i, bits in zip(ids, each, strict=True):
                    to[i] += bits
                continue
            saved = each[0] if kind == XOR_RELAY and each else 0
            total = int(np.sum(amount)) if kind == BROADCAST else sum(each) - saved
            if multicast and ids and total and (kind == BROADCAST or len(ids) > 1):
                once[phase, kind, who] = (once.get((phase, kind, who), (0, ids))[0] + total, ids)
            for i, own in zip(ids, each, strict=True):
                down[i] += 0 if multicast else total if kind == BROADCAST else sum(each) - own
        return down, list(once.values()), work, up

    def _rate(self, client: int) -> tuple[float, float]:
        factor = math.exp(self.options["jitter"] * _draw(self.rounds, client)) if "jitter" in self.options else 1.0
        return self.rates[client][0] * MBIT * factor, self.rates[client][1] * MBIT * factor

    def _line(self, bits: int) -> int:
        if "header" not in self.options or not bits:
            return bits
        size = -(-bits // 8) + HEADER["message"]
        return 8 * (size + HEADER["packet"] * -(-size // HEADER["payload"]))


@functools.cache
def _draw(index: int, client: int) -> float:
    """What jitter makes of a client's rates in a round."""
    return float(Key(("network", "jitter", 0, *KEY.path, index)).normal(torch.tensor([client]), 1))


def _exchanges(legs: Legs) -> list[list[Leg]]:
    """A new one begins after a message up; a leg of no gradients is none."""
    found: list[list[Leg]] = []
    for leg in legs.made:
        if leg.kind == WORK and not np.any(leg.amount):
            continue
        if not found or (found[-1][-1].kind == UP and leg.kind != UP):
            found.append([])
        found[-1].append(leg)
    return found


MOST = 10_000_000
"""Bits of a message at most."""


def _legs(rng: np.random.Generator, one_up: bool) -> Legs:
    """A round of some of the clients with any methods' legs; `one_up`: of those that may have a deadline."""
    num = int(rng.integers(0, NUM + 1))
    clients = tuple(sorted(rng.choice(NUM, num, replace=False).tolist()))
    listed = tuple(sorted(rng.choice(NUM, 2, replace=False).tolist()))
    menu: dict[str, Callable[[], Leg]] = {
        "broadcast": lambda: Leg(BROADCAST, COHORT, int(rng.integers(0, MOST))),
        "to all": lambda: Leg(BROADCAST, ALL, np.array([rng.integers(1, MOST)])),
        "to some": lambda: Leg(BROADCAST, listed, 1_000_000),
        "unicast": lambda: Leg(UNICAST, COHORT, _amount(rng, num)),
        "work": lambda: Leg(WORK, COHORT, _amount(rng, num, 50)),
        "same work": lambda: Leg(WORK, COHORT, 100),
        "up": lambda: Leg(UP, COHORT, _amount(rng, num)),
        "short up": lambda: Leg(UP, COHORT, 160),
        "up twice": lambda: Leg(UP, (*listed, listed[0]), rng.integers(1, MOST, 3)),
        "relay": lambda: Leg(RELAY, COHORT, _amount(rng, num)),
        "xor relay": lambda: Leg(XOR_RELAY, COHORT, 50_000),
    }
    if one_up:
        first = rng.choice(["broadcast", "to all", "unicast"], 2).tolist()
        before = rng.permutation([*first, "work"]).tolist()  # clients may also compute before they are told anything
        chosen = [*before, "up", "short up", rng.choice(["broadcast", "to all", "to some", "unicast", "relay"])]
    else:
        chosen = rng.choice(list(menu), rng.integers(1, 9)).tolist()
    return Legs(clients, [menu[name]() for name in chosen] if num else [])


def _amount(rng: np.random.Generator, num: int, most: int = MOST) -> Any:
    """A number, or one a client, some of them 0."""
    return int(rng.integers(0, 3)) * most if rng.random() < 0.5 else rng.integers(0, 3, num) * rng.integers(1, most)


OPTIONS: list[dict[str, Any]] = [
    {"header": HEADER},
    {"down": "multicast", "trailing": "wait", "jitter": 0.3},
    {"trailing": "wait", "start_s": 0.1},
    {"capacity_bps": 3e6, "cells": 2, "header": HEADER, "down": "multicast"},
    {"deadline": 3.0},
    {"deadline": 2.0, "jitter": 0.5, "down": "multicast"},
]


@looped("options", OPTIONS)
def test_random_rounds_client_by_client(options: dict[str, Any]) -> None:
    num_late = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rates = tuple((*rng.uniform(0.1, 10, 2), rng.uniform(0, 0.2), rng.uniform(0, 0.01)) for _ in range(NUM))
        fast, plain = clock(rates, **options), PlainClock(rates, options)
        for _ in range(4):
            legs = _legs(rng, "deadline" in options)
            if "deadline" in options and legs.clients:
                cohort = Cohort.of(legs.clients, torch.full((len(legs.clients),), 1 / len(legs.clients)))
                chosen = Deadline(fast, np.ones(NUM)).decide(cohort, legs)
                plain.late = _late(plain, legs)
                num_late += len(plain.late)
                assert set(legs.clients) - set(chosen.clients) == plain.late
            fast.advance(round_of(legs, NUM))
            plain.advance(legs)
            plain.late = frozenset()
            line = fast.metrics()
            assert line["time/total"] == pytest.approx(plain.server, rel=1e-12)
            parts = [line.get(f"time/{name}", 0.0) for name in ("downlink", "compute", "uplink", "wait")]
            assert sum(parts) == pytest.approx(plain.server, rel=1e-9)
            assert fast.ready.tolist() == pytest.approx(plain.ready, rel=1e-12)
    assert (num_late > 20) == ("deadline" in options)


def _late(before: PlainClock, legs: Legs) -> frozenset[int]:
    """Who would keep the round open for longer than the deadline, if it alone sent."""
    found = set()
    for client in legs.clients:
        alone = PlainClock(before.rates, before.options, before.server, before.channel, before.rounds, [*before.ready])
        upto = next(place for place, leg in enumerate(legs.made) if leg.kind == UP)
        ups = [leg for leg in legs.made if leg.kind == UP]
        own = [np.where(np.array(legs.clients) == client, leg.amount, 0) for leg in ups]
        alone.advance(Legs(legs.clients, [*legs.made[:upto], *(Leg(UP, COHORT, amount) for amount in own)]))
        if alone.server - before.server > before.options["deadline"]:
            found.add(client)
    return frozenset(found)
