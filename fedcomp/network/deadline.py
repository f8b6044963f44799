"""A deadline: who is late goes on as if it had not taken part, but its bits and gradients are charged.

Client i is late if its message up is not there T seconds after the round began. A round then lasts T; without late
clients it ends with the last message. Weights of those who are on time:

    renormalise   w_i sum_C w / sum_on_time w    biased to the fast
    inverse       w_i / pi_i                     unbiased, where lateness does not depend on the round's data
    lost          w_i                            shorter steps, biased to the fast

With jitter xi of log-deviation s on both rates, A_i = kappa_i G_i + o_i + (its legs) tau_i / 2, B_i = D_i / r_i^d +
U_i / r_i^u, and what is still under way from earlier rounds in A_i too,

    pi_i = P(on time) = Phi(ln((T - A_i) / B_i) / s);  0 if T <= A_i;  for s = 0: 1 if A_i + B_i <= T, else 0.

Lateness follows from what is sent, so a round with late clients is computed twice: once to see what all of the cohort
send, and again without those who are late. So every method's memories are exactly those of a round without them.

Shape legend: M clients of the cohort, N clients in all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.network.clock import Clock, Times
from fedcomp.network.exchanges import exchanges
from fedcomp.network.traffic.rounds import Round, round_of
from fedcomp.wire.legs import WORK, Leg, Legs


@dataclass
class Deadline:
    """Decides a run's rounds one by one, and remembers what it decided.

    Attributes:
        clock: of the run, at the beginning of the round. inclusion: [N] p_i, of Bernoulli participation; else ones.
        notes: what the user is to be told, one line each.
        num_late, num_asked: client-rounds so far. max_inverse: largest 1 / (p_i pi_i) of clients on time.
    """

    clock: Clock
    inclusion: np.ndarray
    notes: list[str] = field(default_factory=list)
    num_late: int = 0
    num_asked: int = 0
    max_inverse: float = 0.0
    _missed: bool = False

    @property
    def _weights(self) -> str:
        return self.clock.network.deadline_weights

    def judge(self, legs: Legs) -> np.ndarray:
        """[M] bool: who of the cohort is late; bits that are on a device are read.

        Raises:
            ValueError: the method has several phases up, or `inverse` cannot be unbiased.
        """
        varying = any(isinstance(leg.amount, Tensor) for leg in legs.made if leg.kind != WORK)
        legs.made = [replace(leg, amount=_on_host(leg)) for leg in legs.made]
        one = round_of(legs, len(self.inclusion))
        found = exchanges(one, len(self.inclusion), self.clock.network.down == "multicast")
        ups = sum(bool(exchange.up.any()) for exchange in found)
        if ups > 1:
            raise ValueError(
                f"network.deadline={self._seconds} is for methods whose rounds have one phase up, but this one has "
                f"{ups}: leave the deadline out, or take another method"
            )
        late = self.clock.late(one)
        if self._weights == "inverse" and one.template:
            self._check_inverse(one, varying)
        self.num_late += int(late.sum())
        self.num_asked += len(late)
        if len(late) and late.all() and not self._missed:
            self._missed = True
            seconds = self.clock.seconds_of(one)
            self.notes.append(
                f"warning: nobody met network.deadline={self._seconds} in round {self.clock.rounds + 1}: the fastest "
                f"client, {one.clients[int(seconds.argmin())]}, takes {seconds.min():.3g} s; rounds go on as if empty"
            )
        return late

    def remember(self, one: Round) -> None:
        """A round of before a resume, as far as what is logged is concerned; the clock is told afterwards."""
        assert one.on_time is not None
        self.num_late += int((~one.on_time).sum())
        self.num_asked += len(one.on_time)
        self._missed = self._missed or bool(len(one.on_time) and not one.on_time.any())
        if self._weights == "inverse" and one.template:
            self._count_inverse(one)

    def on_time(self, cohort: Cohort, legs: Legs, late: np.ndarray) -> Cohort:
        """The cohort without the late, with its new weights."""
        places = torch.from_numpy(np.flatnonzero(~late)).to(cohort.ids.device)
        weight = cohort.weight.index_select(0, places)
        if self._weights == "renormalise":
            weight = weight * (cohort.weight.sum() / weight.sum())
        elif self._weights == "inverse":
            chance = self._chances(round_of(legs, len(self.inclusion)))[~late]
            weight = weight * torch.from_numpy(1 / chance).to(weight)
        clients = tuple(client for client, gone in zip(cohort.clients, late.tolist()) if not gone)
        return replace(cohort, ids=cohort.ids.index_select(0, places), weight=weight, clients=clients)

    def changes(self, late: np.ndarray) -> bool:
        """Whether the round is another than that of the whole cohort."""
        return bool(late.any()) or self._weights == "inverse"

    def metrics(self) -> Times:
        """`deadline/...` of a metrics line."""
        found: Times = {"deadline/late": self.num_late / max(self.num_asked, 1)}
        if self._weights == "inverse":
            found["deadline/max_inverse"] = self.max_inverse
        if not self.clock.rounds:
            found["deadline/unbiased"] = int(self._weights == "inverse")
        return found

    @property
    def _seconds(self) -> float:
        assert self.clock.network.deadline is not None
        return self.clock.network.deadline

    def _check_inverse(self, one: Round, varying: bool) -> None:
        if varying:
            raise ValueError(
                "network.deadline_weights=inverse needs messages whose length the layout decides, but this codec's "
                "depends on the data: take deadline_weights=renormalise or lost, or another codec"
            )
        fixed = self._chances(one, late_legs=False)
        never = [client for client, chance in zip(one.clients, fixed) if not chance]
        if never:
            raise ValueError(
                f"network.deadline_weights=inverse needs every client to have a chance, but client {never[0]} never "
                f"meets network.deadline={self._seconds}: give a longer one, network.jitter, or other weights"
            )
        self._count_inverse(one)

    def _count_inverse(self, one: Round) -> None:
        ids = np.array(one.clients, np.int64)
        with np.errstate(divide="ignore"):
            inverse = 1 / (self.inclusion[ids] * self._chances(one))
        self.max_inverse = max(self.max_inverse, float(inverse.max(initial=0)))

    def _chances(self, one: Round, late_legs: bool = True) -> np.ndarray:
        """[M] pi_i; `late_legs`: with what is still under way from earlier rounds."""
        clock, ids = self.clock, np.array(one.clients, np.int64)
        links = clock.links
        exchange = exchanges(one, len(self.inclusion), multicast=False)[0]
        down, work, up = exchange.down[ids], exchange.work[ids], exchange.up[ids]
        legs = (down > 0).astype(np.int64) + (up > 0)
        fixed = links.work[ids] * work + np.where(work > 0, links.start[ids], 0.0) + legs * links.rtt[ids] / 2
        if late_legs:
            fixed = fixed + np.maximum(clock.ready[ids] - clock.server, 0.0)
        varying = clock.line(down) / links.down[ids] + clock.line(up) / links.up[ids]
        return on_time_probability(fixed, varying, self._seconds, clock.network.jitter)


def on_time_probability(fixed: np.ndarray, varying: np.ndarray, deadline: float, deviation: float) -> np.ndarray:
    """[M] pi_i from A_i, B_i, T and s."""
    left = deadline - fixed
    if not deviation:
        return (varying <= left).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.log(np.where(left > 0, left, np.nan) / varying) / deviation
    phi = np.array([0.5 * math.erfc(-one / math.sqrt(2)) if not math.isnan(one) else 0.0 for one in z])
    return np.where(left > 0, phi, 0.0)


def _on_host(leg: Leg) -> int | np.ndarray:
    return leg.amount.reshape(-1).cpu().numpy() if isinstance(leg.amount, Tensor) else leg.amount
