"""What the exchanges of a round add to each client's clock: bits over rates, round trips, gradients, headers, jitter.

Shape legend: N clients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedcomp.network.delays import CohortDelays, Delays
from fedcomp.network.exchanges import Exchange, exchanges
from fedcomp.network.headers import Header
from fedcomp.network.links.contract import Links, Network
from fedcomp.network.traffic.rounds import Round
from fedcomp.random.keys import Key


class RoundDelays:
    """The delays of a run's rounds.

    Args:
        network: its rules. links: the clients'. key: the run's, for jitter.
    """

    def __init__(self, network: Network, links: Links, key: Key) -> None:
        self._links, self._num_clients = links, len(links.down)
        self._multicast, self._jitter = network.down == "multicast", network.jitter
        self._header = None if network.header is None else Header.of(network.header)
        self._key = Key(("network", "jitter", network.seed, *key.path))
        self._starts, self._half = bool(links.start.any()), links.rtt / 2
        self._last: tuple[Round, list[Delays]] | None = None
        steady = not (self._jitter or self._starts or self._multicast or len(links.capacity))
        by_client = network.trailing == "wait" or network.deadline is not None  # what the clock asks of the others
        self._cohort = CohortDelays(links, self.line) if steady and not by_client else None

    def of(self, one: Round, index: int) -> list[Delays]:
        """What each exchange of round `index` adds; that of the round before where it is the same."""
        if self._last is not None and _alike(one, self._last[0]):
            return self._last[1]
        found = None if self._cohort is None else self._cohort.of(one)
        if found is None:
            found = self._of_all(one, index)
        if not self._jitter:
            self._last = one, found
        return found

    def _of_all(self, one: Round, index: int) -> list[Delays]:
        """Over all clients, leg by leg."""
        down, up = self._rates(index)
        found: list[Delays] = []
        working = self._starts
        for exchange in exchanges(one, self._num_clients, self._multicast):
            found.append(self._delays_of(exchange, down, up, working))
            working = working and not exchange.work.any()
        return found

    def _rates(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Rates down and up in round `index`, with its jitter."""
        if not self._jitter:
            return self._links.down, self._links.up
        factor = np.exp(self._jitter * jitter_draws(self._key, index, self._num_clients))
        return self._links.down * factor, self._links.up * factor

    def _delays_of(self, exchange: Exchange, down: np.ndarray, up: np.ndarray, working: bool) -> Delays:
        """`working`: those who work pay for their start."""
        work = self._links.work * exchange.work
        if working:
            work = work + np.where(exchange.work > 0, self._links.start, 0.0)
        touched = (exchange.down > 0) | (exchange.work > 0)
        once = []
        for bits, who in exchange.once:
            once.append((self.line(bits) / float(down[who].min()), who))
            touched[who] = True
        bits_up = self.line(exchange.up)
        sends = exchange.up > 0
        return Delays(
            None,
            np.where(exchange.down > 0, self.line(exchange.down) / down + self._half, 0.0),
            work,
            np.where(sends, bits_up / up + self._half, 0.0),
            None if touched.all() else touched,
            None if sends.all() else np.flatnonzero(sends),
            tuple(once),
            (bits_up, up) if len(self._links.capacity) else None,
        )

    def line(self, bits: Any) -> Any:
        """Bits on the line, with headers."""
        return bits if self._header is None else self._header.line_bits(bits)


def _alike(one: Round, other: Round) -> bool:
    """Whether two rounds have the same legs with the same numbers, as most rounds that follow each other have."""
    if one is other:
        return one.on_time is None
    if one.varying or one.listed or one.on_time is not None or other.on_time is not None:
        return False
    return one.template == other.template and one.clients == other.clients


def jitter_draws(key: Key, index: int, num_clients: int) -> np.ndarray:
    """[N] float64 standard normal draws of round `index`."""
    return key.fold_in(index).normal(torch.arange(num_clients, device="cpu"), 1).to(torch.float64).numpy()[:, 0]
