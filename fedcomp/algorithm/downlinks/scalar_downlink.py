"""A downlink of scalars: who took part last time holds that round's model, and repeats the server's step on it.

Such an agent is sent only what the server received then: of a shared vector the mean scalars (the vector's seed it
holds already); of vectors of their own all agents' weighted scalars with their seeds, or, where seeds are derived, with
the agents' numbers. Everybody else is sent the model. The first model follows from the run's seed and costs nothing.
Replaying is decoding and adding what the server decoded and added, so both end at the same model, bit for bit.

Shape legend: N clients, M clients of the cohort, P clients of the last round, D parameters, L projections, R rows that
are kept: N, or 1 for a shared vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.compressor.projections.projection import Projection
from fedcomp.compressor.seed import seed_number, seed_words
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import put_rows
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float, Unsigned, bits_for


@dataclass(frozen=True)
class ScalarDownlink:
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
    def init(cls, theta: Tensor, num_clients: int, codec: Projection) -> ScalarDownlink:
        """Before the first round: everybody holds `theta` [D]."""
        rows = 1 if codec.vector == "shared" and num_clients else num_clients
        scalars, number = theta.new_zeros(rows, codec.num_projections), theta.new_zeros(rows, 1, dtype=torch.int64)
        return cls(theta, scalars, number, torch.full((num_clients, 1), -1, dtype=torch.int64, device="cpu"))

    def update(
        self, theta: Tensor, scalars: Tensor, number: Tensor, cohort: Cohort, round_index: int
    ) -> ScalarDownlink:
        """After a round that began with `theta`: weighted scalars [M, L] and seeds [M], or one of a shared vector."""
        number = number[:, None]
        if len(self.scalars) == len(self.last):
            scalars, number = put_rows(self.scalars, cohort, scalars), put_rows(self.number, cohort, number)
        last = self.last.clone()
        last.numpy()[list(cohort.clients)] = round_index
        return ScalarDownlink(theta, scalars, number, last)

    def send(self, theta: Tensor, cohort: Cohort, codec: Projection, ctx: Context) -> Tensor:
        """The server's model `theta` [D] goes to the cohort; returns the models [M, D] that its clients begin with."""
        last = self.last.numpy()[:, 0]
        holds = last[list(cohort.clients)] == last.max()
        replayed = self._send_step(int(holds.sum()), codec, ctx) if holds.any() else theta
        received = send_model(theta, int((~holds).sum()), ctx) if not holds.all() else theta
        if holds.all() or not holds.any():
            return (replayed if holds.all() else received).expand(cohort.size, -1)
        return torch.where(torch.from_numpy(holds).to(theta.device, non_blocking=True)[:, None], replayed, received)

    def _send_step(self, num_receivers: int, codec: Projection, ctx: Context) -> Tensor:
        """[D]: the model of agents that hold `self.theta`, after the last round's messages."""
        last = self.last.numpy()[:, 0]
        if last.max() < 0:
            return self.theta
        common = ctx.common("replay", ctx.server(self.theta))
        if codec.vector == "shared":
            fields, number = {"scalars": Field(self.scalars, Float())}, self.number[:, 0]
            received = ctx.link.broadcast(Payload(fields, paper_bits=0), num_receivers)
        else:
            who = torch.from_numpy(np.flatnonzero(last == last.max())).to(self.theta.device, non_blocking=True)
            received = ctx.link.broadcast(self._messages(who, codec), num_receivers)
            number = self._numbers(received)
        common = SharedKnowledge(common.key, common.ids, common.layers, seed=number)
        message = Payload({"scalars": received.fields["scalars"]})  # their seeds are in `common` by now
        return self.theta + codec.weighted_sum(message, common, self.theta.new_ones(message.num_rows))

    def _messages(self, who: Tensor, codec: Projection) -> Payload:
        """What the server received from the agents `who` [P] in the last round."""
        scalars = {"scalars": Field(self.scalars[who], Float())}
        if codec.seed == "sent":
            return Payload({"seed": Field(seed_words(self.number[who, 0]), Unsigned(32)), **scalars}, paper_bits=0)
        width = bits_for(self.last.shape[0])
        return Payload({"client": Field(who[:, None], Unsigned(width)), **scalars}, paper_bits=0)

    def _numbers(self, received: Payload) -> Tensor:
        """[P] the seeds that come with the messages, or that anybody derives from whose they are."""
        if "seed" in received.fields:
            return seed_number(received.fields["seed"].data)
        return self.number[received.fields["client"].data[:, 0], 0]


def send_model(theta: Tensor, num_receivers: int, ctx: Context) -> Tensor:
    """Broadcast the model [D] in float32, which the paper does not count; returns what is received."""
    payload = Payload({"model": Field(theta[None], Float())}, paper_bits=0)
    return ctx.link.broadcast(payload, num_receivers).fields["model"].data[0]
