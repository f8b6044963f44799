"""Section 6.1 of the specification: two clients, three exchanges."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.network.clock import Clock
from fedcomp.network.links.contract import Links, Network
from fedcomp.network.traffic.rounds import Round, round_of
from fedcomp.random.keys import Key
from fedcomp.wire.legs import BROADCAST, UNICAST, UP, WORK, Leg, Legs

MBIT = 1e6


@dataclass(frozen=True, kw_only=True)
class Given(Network):
    """Links as they are given: rates in Mbit/s, seconds."""

    rates: tuple[tuple[float, ...], ...]
    """(down, up, round trip, seconds a gradient) of each client."""
    cell_of: tuple[int, ...] | None = None

    def links(self, num_clients: int) -> Links:
        down, up, rtt, work = np.array(self.rates, dtype=np.float64).T
        cell = None if self.cell_of is None else np.array(self.cell_of, np.int64)
        return self.made(down * MBIT, up * MBIT, rtt, work, cell)


TWO = ((10, 1, 0.10, 0.001), (20, 4, 0.04, 0.002))


def clock(rates: tuple[tuple[float, ...], ...] = TWO, **options: Any) -> Clock:
    network = Given(rates=rates, **options)
    return Clock(network, network.links(len(rates)), Key(("run", 0)))


def legs(*made: tuple[int, Any], clients: tuple[int, ...] = (0, 1)) -> Round:
    """A round of legs (kind, amounts of the cohort); a broadcast goes to the cohort."""
    each = [Leg(kind, "cohort", np.array(amount) if isinstance(amount, list) else amount) for kind, amount in made]
    return round_of(Legs(clients, each), 2)


THREE_EXCHANGES = legs(
    *[(BROADCAST, 2_000_000), (WORK, [100, 100]), (UP, [500_000, 1_000_000])],
    *[(UNICAST, [100_000, 100_000]), (UP, [100_000, 2_000_000]), (UNICAST, [1_000_000, 500_000])],
)
