"""Seconds of a synchronous run, from its rounds' legs and the clients' links.

S is the server's clock, R_i when client i holds all that was sent to it. For each exchange, with D_i, G_i, U_i a
client's bits down, gradients and bits up:

    a_i = max(S, R_i)
    d_i = a_i + D_i / r_i^d + tau_i / 2  if D_i > 0, else a_i
    w_i = d_i + kappa_i G_i (+ o_i, in the round's first work)
    u_i = w_i + U_i / r_i^u + tau_i / 2  if U_i > 0, else w_i      (a cell: cell.py)
    S <- max u_i over the clients with U_i > 0,  R_i <- w_i for all that received or worked

The server needs all messages up before it sends again, so a round of several exchanges is a sum of maxima. What is sent
last is not waited for: clients wait for it when they next need it. `fedcomp/network/` has no state but this clock, and
run and replay fold the same integers with the same operations, so that their times are the same bits.

Shape legend: N clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fedcomp.network.cell import shared_uplink
from fedcomp.network.exchanges import Exchange, exchanges
from fedcomp.network.headers import Header
from fedcomp.network.links.contract import Links, Network
from fedcomp.network.traffic.rounds import Round
from fedcomp.random.keys import Key

Times = dict[str, float | int]


@dataclass
class Clock:
    """One run's clock; `advance` changes it.

    Attributes:
        network: its rules. links: the clients'. key: the run's, for jitter.
        server: S. ready: [N] R_i. channel: until when a multicast occupies the server's line.
        downlink, compute, uplink, wait: the critical clients' shares of S, summed.
        last: duration of the last round. slowest: its last critical client, -1 for none.
        critical: [N] how often each client was critical. rounds: so far.
    """

    network: Network
    links: Links
    key: Key
    server: float = 0.0
    ready: np.ndarray = field(init=False)
    channel: float = 0.0
    downlink: float = 0.0
    compute: float = 0.0
    uplink: float = 0.0
    wait: float = 0.0
    last: float = 0.0
    slowest: int = -1
    critical: np.ndarray = field(init=False)
    rounds: int = 0

    def __post_init__(self) -> None:
        num = len(self.links.down)
        self.ready, self.critical = np.zeros(num), np.zeros(num, np.int64)
        self._header = None if self.network.header is None else Header.of(self.network.header)
        self._jitter = Key(("network", "jitter", self.network.seed, *self.key.path))

    def advance(self, one: Round) -> None:
        """Add a round."""
        begin, cohort = self.server, np.array(one.clients, np.int64)
        down, up = self._rates(self.rounds)
        working = True
        self.slowest = -1
        ended: tuple[np.ndarray, np.ndarray] | None = None
        for exchange in self._exchanges(one):
            server = self.server
            received, worked, sent, touched = self._times(exchange, down, up, working)
            working = working and not exchange.work.any()
            self.ready = np.where(touched, worked, self.ready)
            ended = received, worked
            if not exchange.up.any():
                continue
            ended = None
            counted = exchange.up > 0
            if one.on_time is not None:
                counted[cohort[~one.on_time]] = False
            if counted.any():
                self._critical(int(np.where(counted, sent, -np.inf).argmax()), server, received, worked, sent)
            if one.on_time is not None and not one.on_time.all():
                assert self.network.deadline is not None
                end = begin + self.network.deadline
                self.wait += end - self.server
                self.server = end
                self.ready[cohort[~one.on_time]] = end
        if self.network.trailing == "wait" and len(cohort):
            self._wait_for(cohort, ended)
        self.last = self.server - begin
        self.rounds += 1

    def late(self, one: Round) -> np.ndarray:
        """[M] bool: who of a round's cohort would be late for the deadline; changes nothing."""
        deadline = self.network.deadline
        assert deadline is not None
        return self.seconds_of(one) > deadline

    def seconds_of(self, one: Round) -> np.ndarray:
        """[M] seconds from the beginning of a round until each client's message up is there; changes nothing."""
        cohort = np.array(one.clients, np.int64)
        down, up = self._rates(self.rounds)
        channel = self.channel
        for exchange in self._exchanges(one):
            *_, sent, _ = self._times(exchange, down, up, working=True)
            self.channel = channel
            if exchange.up.any():
                return np.asarray(sent[cohort] - self.server)
        return np.zeros(len(cohort))

    def metrics(self) -> Times:
        """`time/...` of a metrics line."""
        found: Times = {
            "time/total": self.server,
            "time/downlink": self.downlink,
            "time/compute": self.compute,
            "time/uplink": self.uplink,
            "time/round": self.last,
        }
        if self.network.deadline is not None:
            found["time/wait"] = self.wait
        return found | ({"time/slowest": self.slowest} if self.slowest >= 0 else {})

    def _exchanges(self, one: Round) -> list[Exchange]:
        return exchanges(one, len(self.ready), self.network.down == "multicast")

    def _rates(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Rates down and up in round `index`, with its jitter."""
        if not self.network.jitter:
            return self.links.down, self.links.up
        factor = np.exp(self.network.jitter * jitter_draws(self._jitter, index, len(self.ready)))
        return self.links.down * factor, self.links.up * factor

    def _times(
        self, exchange: Exchange, down: np.ndarray, up: np.ndarray, working: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """d_i, w_i, u_i, and who received or worked; `working`: the round has had no work before this exchange."""
        links, half = self.links, self.links.rtt / 2
        received = np.maximum(self.server, self.ready)
        touched = (exchange.down > 0) | (exchange.work > 0)
        for bits, who in exchange.once:
            end = max(self.server, self.channel) + self.line(bits) / float(down[who].min())
            self.channel = end
            received[who] = np.maximum(received[who], end + half[who])
            touched[who] = True
        received = np.where(exchange.down > 0, received + self.line(exchange.down) / down + half, received)
        worked = received + links.work * exchange.work
        if working and links.start.any():
            worked = worked + np.where(exchange.work > 0, links.start, 0.0)
        bits_up = self.line(exchange.up)
        done = self._cells(worked, bits_up, up) if len(links.capacity) else worked + bits_up / up
        return received, worked, np.where(exchange.up > 0, done + half, worked), touched

    def _cells(self, begin: np.ndarray, bits: np.ndarray, up: np.ndarray) -> np.ndarray:
        done = begin.copy()
        for cell, capacity in enumerate(self.links.capacity.tolist()):
            who = np.flatnonzero((self.links.cell == cell) & (bits > 0))
            if len(who):
                done[who] = shared_uplink(begin[who], bits[who], up[who], capacity)
        return done

    def _critical(self, client: int, server: float, received: np.ndarray, worked: np.ndarray, sent: np.ndarray) -> None:
        """The barrier: the server goes on when `client` is there."""
        self.server = float(sent[client])
        self.downlink += float(received[client]) - server
        self.compute += float(worked[client] - received[client])
        self.uplink += self.server - float(worked[client])
        self.slowest = client
        self.critical[client] += 1

    def _wait_for(self, cohort: np.ndarray, ended: tuple[np.ndarray, np.ndarray] | None) -> None:
        """`trailing=wait`: the round ends when the cohort holds all."""
        client = int(cohort[self.ready[cohort].argmax()])
        more = float(self.ready[client]) - self.server
        if more <= 0:
            return
        work = min(more, float(ended[1][client] - ended[0][client])) if ended is not None else 0.0
        self.compute += work
        self.downlink += more - work
        self.server = float(self.ready[client])
        self.slowest = client
        self.critical[client] += 1

    def line(self, bits: Any) -> Any:
        """Bits on the line, with headers."""
        return bits if self._header is None else self._header.line_bits(bits)


def jitter_draws(key: Key, index: int, num_clients: int) -> np.ndarray:
    """[N] float64 standard normal draws of round `index`."""
    return key.fold_in(index).normal(torch.arange(num_clients, device="cpu"), 1).to(torch.float64).numpy()[:, 0]
