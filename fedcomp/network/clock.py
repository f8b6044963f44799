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

Shape legend: N clients, M of the cohort.
"""

from dataclasses import dataclass, field

import numpy as np

from fedcomp.network.cell import shared_uplink
from fedcomp.network.delays import Delays, RoundDelays
from fedcomp.network.links.contract import Links, Network
from fedcomp.network.traffic.rounds import Round
from fedcomp.random.keys import Key

Times = dict[str, float | int]
NOBODY = np.zeros(0, np.int64)


@dataclass
class Clock:
    """One run's clock; `advance` changes it.

    Attributes:
        network: its rules. links: the clients'. key: the run's, for jitter.
        server: S. ready: [N] R_i. channel: until when a multicast occupies the server's line.
        downlink, compute, uplink, wait: the critical clients' shares of S, summed.
        last: duration of the last round. slowest: its last critical client, -1 for none.
        critical: [N] how often each client was critical. rounds: so far. delays: what exchanges add to the clocks.
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
    delays: RoundDelays = field(init=False)

    def __post_init__(self) -> None:
        num = len(self.links.down)
        self.ready, self.critical = np.zeros(num), np.zeros(num, np.int64)
        self.delays = RoundDelays(self.network, self.links, self.key)
        self._half = self.links.rtt / 2

    def advance(self, one: Round) -> None:
        """Add a round."""
        begin = self.server
        cohort = np.array(one.clients, np.int64)
        late = NOBODY if one.on_time is None else cohort[~one.on_time]
        self.slowest = -1
        ended: tuple[np.ndarray, np.ndarray] | None = None
        for delays in self.delays.of(one, self.rounds):
            received, worked, sent = self._times(delays)
            self.ready = np.where(delays.touched, worked, self.ready)
            ended = None if len(delays.senders) else (received, worked)
            if ended is not None:
                continue
            in_time = np.setdiff1d(delays.senders, late) if len(late) else delays.senders
            if len(in_time):
                self._critical(int(in_time[sent[in_time].argmax()]), received, worked, sent)
            if len(late):
                self._cut_off(begin, late)
        if self.network.trailing == "wait" and len(cohort):
            self._wait_for(cohort, ended)
        self.last = self.server - begin
        self.rounds += 1

    def seconds_of(self, one: Round) -> np.ndarray:
        """[M] seconds from the beginning of a round until each client's message up is there; changes nothing."""
        cohort = np.array(one.clients, np.int64)
        channel = self.channel
        for delays in self.delays.of(one, self.rounds):
            *_, sent = self._times(delays)
            self.channel = channel
            if len(delays.senders):
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

    def _times(self, delays: Delays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """d_i, w_i, u_i."""
        received = np.maximum(self.server, self.ready)
        for seconds, who in delays.once:
            self.channel = max(self.server, self.channel) + seconds
            received[who] = np.maximum(received[who], self.channel + self._half[who])
        received = received + delays.down
        worked = received + delays.work
        if delays.shared is None:
            return received, worked, worked + delays.up
        done = self._cells(worked, *delays.shared)
        return received, worked, np.where(delays.shared[0] > 0, done + self._half, worked)

    def _cells(self, begin: np.ndarray, bits: np.ndarray, up: np.ndarray) -> np.ndarray:
        done = begin.copy()
        for cell, capacity in enumerate(self.links.capacity.tolist()):
            who = np.flatnonzero((self.links.cell == cell) & (bits > 0))
            if len(who):
                done[who] = shared_uplink(begin[who], bits[who], up[who], capacity)
        return done

    def _critical(self, client: int, received: np.ndarray, worked: np.ndarray, sent: np.ndarray) -> None:
        """The barrier: the server goes on when this client is there."""
        here, done, there = received.item(client), worked.item(client), sent.item(client)
        self.downlink += here - self.server
        self.compute += done - here
        self.uplink += there - done
        self.server, self.slowest = there, client
        self.critical[client] += 1

    def _cut_off(self, begin: float, late: np.ndarray) -> None:
        """The deadline: the server goes on without the clients `late`, and they without their round."""
        assert self.network.deadline is not None
        end = begin + self.network.deadline
        self.wait += end - self.server
        self.server = end
        self.ready[late] = end

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
