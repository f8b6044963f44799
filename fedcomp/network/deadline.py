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

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.network.clock import Clock, Times
from fedcomp.network.exchanges import exchanges
from fedcomp.network.traffic.rounds import TO_LISTED, Round, round_of
from fedcomp.wire.legs import WORK, Legs

VARYING_LENGTH = (
    "network.deadline_weights=inverse needs messages whose length the layout decides, but this codec's depends on the "
    "data: take deadline_weights=renormalise or lost, or another codec"
)


@dataclass
class Deadline:
    """Decides a run's rounds one by one, and remembers what it decided.

    Attributes:
        clock: of the run, at the beginning of the round. inclusion: [N] p_i, of Bernoulli participation; else ones.
        where: what its notes begin with, such as "repetition 2: ".
        num_late, num_asked: client-rounds so far. max_inverse: largest 1 / (p_i pi_i) of clients on time.
    """

    clock: Clock
    inclusion: np.ndarray
    where: str = ""
    num_late: int = 0
    num_asked: int = 0
    max_inverse: float = 0.0
    _notes: list[str] = field(default_factory=list)
    _missed: bool = False

    def __post_init__(self) -> None:
        if self._inverse:  # each client waits for half of its round trip at least
            least = on_time_probability(self.clock.links.rtt / 2, np.zeros_like(self.inclusion), self.seconds, 0)
            self._check_chances(range(len(least)), least)

    @property
    def seconds(self) -> float:
        """T."""
        assert self.clock.network.deadline is not None
        return self.clock.network.deadline

    def decide(self, cohort: Cohort, legs: Legs) -> Cohort:
        """The cohort without those who are late, with its new weights; the cohort itself if nothing changes.

        Sets `legs.late`. Bits that are on a device are read.

        Raises:
            ValueError: the method has several phases up, or `inverse` cannot be unbiased.
        """
        one, varying = self._read(legs)
        seconds = self.clock.seconds_of(one)
        legs.late = seconds > self.seconds
        if self._inverse and one.template:
            self._check_everyone(one, varying)
            self._check_chances(one.clients, self._chances(one, late_legs=False))
            self._count_inverse(one, ~legs.late)
        self._count(legs.late)
        if len(legs.late) and legs.late.all() and not self._missed:
            self._missed = True
            self._notes.append(
                f"warning: {self.where}nobody met network.deadline={self.seconds} in round {self.clock.rounds + 1}: "
                f"the fastest client, {one.clients[int(seconds.argmin())]}, takes {seconds.min():.3g} s; rounds go on "
                "as if empty"
            )
        changes = legs.late.any() or (self._inverse and one.template)
        return self._on_time(cohort, one, legs.late) if changes else cohort

    def check(self, legs: Legs) -> None:
        """Before the first round, whether anybody could be on time with the messages of such a round.

        Raises:
            ValueError: as `decide`, as far as it follows from messages; gradients of other clients are not known yet.
        """
        one, varying = self._read(legs)
        if self._inverse and one.template:
            self._check_everyone(one, varying)

    def remember(self, one: Round) -> None:
        """A round of before a resume, as far as what is logged is concerned; the clock is told afterwards."""
        assert one.on_time is not None
        self._count(~one.on_time)
        self._missed = self._missed or bool(len(one.on_time) and not one.on_time.any())
        if self._inverse and one.template:
            self._count_inverse(one, one.on_time)

    def take_notes(self) -> list[str]:
        """What the user is to be told, one line each, since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def metrics(self) -> Times:
        """`deadline/...` of a metrics line."""
        found: Times = {"deadline/late": self.num_late / max(self.num_asked, 1)}
        if self._inverse:
            found["deadline/max_inverse"] = self.max_inverse
        if not self.clock.rounds:
            found["deadline/unbiased"] = int(self._inverse)
        return found

    @property
    def _inverse(self) -> bool:
        return self.clock.network.deadline_weights == "inverse"

    def _on_time(self, cohort: Cohort, one: Round, late: np.ndarray) -> Cohort:
        kept = cohort.without({client for client, gone in zip(cohort.clients, late.tolist()) if gone})
        if self.clock.network.deadline_weights == "renormalise":
            return kept
        weight = cohort.weight[torch.from_numpy(~late).to(cohort.ids.device)]
        if self._inverse:
            weight = weight * torch.from_numpy(1 / self._chances(one)[~late]).to(weight)
        return replace(kept, weight=weight)

    def _read(self, legs: Legs) -> tuple[Round, bool]:
        """(the round, whether bits depend on data); bits that are on a device are read."""
        varying = any(leg.kind != WORK and isinstance(leg.amount, Tensor) for leg in legs.made)
        legs.resolve(amount.reshape(-1).cpu().numpy() for amount in legs.on_device)
        one = round_of(legs, len(self.inclusion))
        self._check_phases(one)
        return one, varying

    def _check_phases(self, one: Round) -> None:
        """Of a method of the user's own; `algorithm/fit.py` refuses fedcomp's before the first round."""
        found = exchanges(one, len(self.inclusion), self.clock.network.down == "multicast")
        num = sum(bool(exchange.up.any()) for exchange in found)
        if num > 1:
            raise ValueError(
                f"network.deadline={self.seconds} is for methods whose rounds have one phase up, but this one has "
                f"{num}: leave the deadline out, or take another method"
            )

    def _check_everyone(self, one: Round, varying: bool) -> None:
        if varying:
            raise ValueError(VARYING_LENGTH)
        common = tuple(leg for leg in one.template if leg.kind != WORK and leg.who != TO_LISTED)
        everyone = Round(common, tuple(range(len(self.inclusion))))  # as if all had been asked, for no work
        self._check_chances(everyone.clients, self._chances(everyone, late_legs=False))

    def _check_chances(self, clients: Sequence[int], chances: np.ndarray) -> None:
        never = [client for client, chance in zip(clients, chances) if not chance]
        if never:
            raise ValueError(
                f"network.deadline_weights=inverse needs every client to have a chance, but client {never[0]} never "
                f"meets network.deadline={self.seconds}: give a longer one, network.jitter, or other weights"
            )

    def _count(self, late: np.ndarray) -> None:
        self.num_late += int(late.sum())
        self.num_asked += len(late)

    def _count_inverse(self, one: Round, on_time: np.ndarray) -> None:
        ids = np.array(one.clients, np.int64)[on_time]
        inverse = 1 / (self.inclusion[ids] * self._chances(one)[on_time])
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
        varying = clock.delays.line(down) / links.down[ids] + clock.delays.line(up) / links.up[ids]
        return on_time_probability(fixed, varying, self.seconds, clock.network.jitter)


def on_time_probability(fixed: np.ndarray, varying: np.ndarray, deadline: float, deviation: float) -> np.ndarray:
    """[M] pi_i from A_i, B_i, T and s."""
    left = deadline - fixed
    if not deviation:
        return (varying <= left).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.log(np.where(left > 0, left, np.nan) / varying) / deviation
    phi = np.array([0.5 * math.erfc(-one / math.sqrt(2)) if not math.isnan(one) else 0.0 for one in z])
    return np.where(left > 0, phi, 0.0)
