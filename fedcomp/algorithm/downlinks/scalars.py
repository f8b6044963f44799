"""A downlink of scalars: who took part last time holds that round's model, and repeats the server's step on it.

Such an agent is sent only what the server received then: of a shared vector the mean scalars (the vector's seed it
holds already); of vectors of their own all agents' weighted scalars with their seeds, or, where seeds are derived, with
the agents' numbers. Everybody else is sent the model. The first model follows from the run's seed and costs nothing.
The scalars of many agents may be longer than the model: with `shortest` that is sent instead. A receiver tells the two
apart by their length, since scalars that take as many bits as the model are not sent. Replaying is decoding and adding
what the server decoded and added, so both end at the same model, bit for bit.

Shape legend: N clients, M clients of the cohort, P clients of the last round, D parameters, L projections, R rows that
are kept: N, or 1 for a shared vector.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.downlinks.downlink import Downlink
from fedcomp.compressor.projections.projection import Projection
from fedcomp.compressor.seed import seed_number, seed_words
from fedcomp.core.cohort import Cohort, Listed, Receivers
from fedcomp.core.pytree import put_rows
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float, Unsigned, bits_for


@dataclass(frozen=True)
class WeightedScalars:
    """What the server averages: the messages up, whose decoded sum is its step.

    Attributes:
        scalars: [M, L] float32, each agent's, times its weight; of a shared vector their sum [1, L].
        number: [M] or [1] int64, the seeds that belong to them.
    """

    scalars: Tensor
    number: Tensor


@dataclass(frozen=True)
class LastRound:
    """State from which server and agents repeat the last round's step; of length 0 if models are sent.

    Attributes:
        theta: [D] float32 model with which that round began.
        scalars: [R, L] float32, the weighted scalars of each agent's last message; of a shared vector their sum.
        number: [R, 1] int64, the seeds that belong to them.
        last: [N, 1] int64, the round in which each agent last took part, -1 for none. It lies on the host, as the
            cohort's numbers do, so that a GPU is not asked who is to be sent what.
    """

    theta: Tensor
    scalars: Tensor
    number: Tensor
    last: Tensor

    @classmethod
    def init(cls, theta: Tensor, num_clients: int, codec: Projection) -> "LastRound":
        """Before the first round: everybody holds `theta` [D]."""
        rows = 1 if codec.vector == "shared" and num_clients else num_clients
        scalars, number = theta.new_zeros(rows, codec.num_projections), theta.new_zeros(rows, 1, dtype=torch.int64)
        return cls(theta, scalars, number, torch.full((num_clients, 1), -1, dtype=torch.int64, device="cpu"))


@dataclass(frozen=True)
class ScalarDownlink(Downlink[LastRound, WeightedScalars]):
    """The last round's scalars to those who took part in it, the model to the others of the cohort.

    Attributes:
        codec: decodes the scalars, at the server and at the agents.
        shortest: send everybody the model where the scalars are no shorter.
    """

    sends_model = True

    codec: Projection
    shortest: bool = False

    def model(self, theta: Tensor, memory: LastRound, cohort: Cohort, ctx: Context) -> tuple[Tensor, LastRound]:
        """[D] or [M, D] what the cohort begins with, and the memory of a round that began with `theta`."""
        last = memory.last.numpy()[:, 0]
        holds = last[list(cohort.clients)] == last.max()
        if self.shortest and last.max() >= 0 and self._scalars(memory).total_bits >= 32 * theta.shape[0]:
            holds[:] = False
        received = replayed = theta
        if holds.any():
            replayed = self._send_step(memory, _some(cohort, holds), ctx)
        if not holds.all():
            received = ctx.send_dense("model", theta, _some(cohort, ~holds), paper_bits=0)
        own = replayed if ctx.link.client in list(itertools.compress(cohort.clients, holds.tolist())) else received
        begun = replace(memory, theta=own)
        if holds.all() or not holds.any():
            return replayed if holds.all() else received, begun
        return torch.where(
            torch.from_numpy(holds).to(theta.device, non_blocking=True)[:, None], replayed, received
        ), begun

    def mean(
        self, mean: WeightedScalars, memory: LastRound, cohort: Cohort, ctx: Context
    ) -> tuple[WeightedScalars, LastRound]:
        """Sends nothing yet: keeps the scalars for those who take part in the next round too."""
        scalars, number = mean.scalars, mean.number[:, None]
        if len(memory.scalars) == len(memory.last):
            scalars, number = put_rows(memory.scalars, cohort, scalars), put_rows(memory.number, cohort, number)
        last = memory.last.clone()
        last.numpy()[list(cohort.clients)] = ctx.round
        return mean, LastRound(memory.theta, scalars, number, last)

    def _send_step(self, memory: LastRound, receivers: Receivers, ctx: Context) -> Tensor:
        """[D]: the model of agents that hold `memory.theta`, after the last round's messages."""
        last, codec = memory.last.numpy()[:, 0], self.codec
        if last.max() < 0:
            return memory.theta
        common = ctx.common("replay", ctx.server(memory.theta))
        received = ctx.link.broadcast(self._scalars(memory), receivers)
        number = memory.number[:, 0] if codec.vector == "shared" else _numbers(memory, received)
        common = SharedKnowledge(common.key, common.ids, common.layers, seed=number)
        message = Payload({"scalars": received.fields["scalars"]})  # their seeds are in `common` by now
        return memory.theta + codec.weighted_sum(message, common, memory.theta.new_ones(message.num_rows))

    def _scalars(self, memory: LastRound) -> Payload:
        """What the server received in the last round, of which its step is made."""
        if self.codec.vector == "shared":
            return Payload({"scalars": Field(memory.scalars, Float())}, paper_bits=0)
        last = memory.last.numpy()[:, 0]
        who = torch.from_numpy(np.flatnonzero(last == last.max())).to(memory.theta.device, non_blocking=True)
        scalars = {"scalars": Field(memory.scalars[who], Float())}
        if self.codec.seed_cost == "sent":
            return Payload({"seed": Field(seed_words(memory.number[who, 0]), Unsigned(32)), **scalars}, paper_bits=0)
        width = bits_for(memory.last.shape[0])
        return Payload({"client": Field(who[:, None], Unsigned(width)), **scalars}, paper_bits=0)


def _some(cohort: Cohort, chosen: np.ndarray) -> Receivers:
    """The clients of the cohort that a mask [M] chooses."""
    return cohort if chosen.all() else Listed(tuple(itertools.compress(cohort.clients, chosen.tolist())))


def _numbers(memory: LastRound, received: Payload) -> Tensor:
    """[P] the seeds that come with the messages, or that anybody derives from whose they are."""
    if "seed" in received.fields:
        return seed_number(received.fields["seed"].data)
    return memory.number[received.fields["client"].data[:, 0], 0]
