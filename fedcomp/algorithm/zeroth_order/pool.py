"""The pool of directions that a model is made of: its seeds, its coefficients, and how these get to the clients.

Shape legend: K directions of the pool, N clients, M of the cohort, S local steps, D parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Clients, Context
from fedcomp.algorithm.zeroth_order.two_point import VALUES_AT_ONCE, TwoPoint
from fedcomp.compressor.seed import seed_number
from fedcomp.core.cohort import Cohort, Listed
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float, Unsigned, bits_for

LARGEST = 1000.0
"""What an amplitude is cut at, as in FedKSeed-Pro's code."""


@dataclass(frozen=True)
class Pool:
    """The directions' seeds and coefficients, and how often each was used.

    Attributes:
        numbers: [K] int64 seeds, from the run's. sums: [K] float32 coefficients a.
        amplitude, uses: [K] float32 sum of |g| and number of uses of each direction; [0] where nobody asks for them.
    """

    numbers: Tensor
    sums: Tensor
    amplitude: Tensor
    uses: Tensor

    @classmethod
    def init(cls, size: int, like: Tensor, notes_amplitudes: bool, key: Key) -> Pool:
        """All coefficients 0; seeds from `key`."""
        numbers = seed_number(key.bits(torch.arange(size, device=like.device), 2))
        none = like.new_zeros(size if notes_amplitudes else 0)
        return cls(numbers, like.new_zeros(size), none, none)

    @property
    def size(self) -> int:
        """K."""
        return len(self.numbers)

    def probabilities(self) -> Tensor:
        """[K] float32 pi: uniform, or softmax of the mean amplitudes h after these are scaled to [0, 1]."""
        if not len(self.amplitude):
            return torch.full_like(self.sums, 1 / self.size)
        h = self.amplitude.double() / (1 + self.uses.double())
        spread = (h.max() - h.min()).clamp(min=torch.finfo(torch.float64).tiny)
        return ((h - h.min()) / spread).softmax(0).to(torch.float32)

    def add(self, chosen: Tensor, scalars: Tensor, steps: Tensor) -> Pool:
        """With steps [M, S] added to the coefficients of the directions `chosen` [M, S]; scalars [M, S] are noted."""
        at = chosen.flatten()

        def summed(values: Tensor) -> Tensor:
            return torch.zeros_like(self.sums, dtype=torch.float64).index_add_(0, at, values.double().flatten())

        sums = (self.sums.double() + summed(steps)).to(torch.float32)
        if not len(self.amplitude):
            return Pool(self.numbers, sums, self.amplitude, self.uses)
        amplitude = self.amplitude + summed(scalars.abs().clamp(max=LARGEST)).to(torch.float32)
        return Pool(self.numbers, sums, amplitude, self.uses + summed(scalars != 0).to(torch.float32))

    def model(self, theta0: Tensor, lr: float, two_point: TwoPoint, clients: Clients) -> Tensor:
        """[D] float32 x_0 - eta sum_j a_j z_j, summed in float64 in the order of the pool."""
        places = torch.arange(self.size, device=self.sums.device)
        if self.sums.device.type == "cpu":  # where looking costs nothing, directions of coefficient 0 are left out
            places = places[self.sums != 0]

        def part(some: Tensor) -> Tensor:
            z = two_point.directions(self.numbers[some], 1, 0, len(theta0))[:, 0]
            return self.sums[some].double() @ z.double()

        total = torch.zeros_like(theta0, dtype=torch.float64)
        if len(places):
            for entries in clients.parallel_map(part, places.split(max(1, VALUES_AT_ONCE // len(theta0)))):
                total += entries
        return (theta0.double() - lr * total).to(theta0.dtype)

    def spread(self) -> dict[str, Tensor]:
        """How the coefficients are spread over the pool."""
        size = self.sums.double().abs()
        share = size / size.sum().clamp(min=torch.finfo(torch.float64).tiny)
        return {
            "pool/used": (self.sums != 0).double().mean(),
            "pool/max_share": share.max(),
            "pool/entropy": torch.special.entr(share).sum() / math.log(2),
        }


@dataclass(frozen=True)
class Increments:
    """Which coefficients changed since a client's last round; of length 0 where all are sent every time.

    Attributes:
        changed: [K] int64 round that last changed a coefficient, -1 for none.
        made: [1] int64 rounds so far. last: [N, 1] int64 the one in which each client last took part, -1 for none. Both
            lie on the host.
    """

    changed: Tensor
    made: Tensor
    last: Tensor

    @classmethod
    def init(cls, pool: Pool, num_clients: int) -> Increments:
        """Before the first round; no clients: all coefficients are sent every time."""
        host = torch.device("cpu")
        changed = torch.full_like(pool.numbers[: None if num_clients else 0], -1)
        made = torch.zeros(min(num_clients, 1), dtype=torch.int64, device=host)
        return cls(changed, made, torch.full((num_clients, 1), -1, dtype=torch.int64, device=host))

    def send(self, pool: Pool, share: Tensor, cohort: Cohort, ctx: Context) -> Tensor:
        """The coefficients to the cohort, who make the model of them; the probabilities [K] as they arrive.

        A client gets all of them, or the (index, value) of those that changed since its last round, if that is shorter:
        how many there are is read from the device. The paper counts K numbers and a seed.
        """
        paper = 32 * pool.size + 32
        extra = {"probabilities": Field(share[None], Float())} if len(pool.amplitude) else {}
        whole = {"sums": Field(pool.sums[None], Float()), **extra}
        if not len(self.made):
            received = ctx.link.broadcast(Payload(whole, paper_bits=paper), cohort)
            return received.fields["probabilities"].data[0] if extra else share
        last, width = self.last.numpy()[list(cohort.clients), 0].tolist(), bits_for(pool.size)
        for number in sorted(set(last)):
            away = Listed(tuple(client for client, own in zip(cohort.clients, last) if own == number))
            where = (self.changed >= max(number, 0)).nonzero()[:, 0]
            some = {"index": Field(where[None], Unsigned(width)), "sums": Field(pool.sums[where][None], Float())}
            fields = {**some, **extra} if len(where) * (32 + width) < 32 * pool.size else whole
            received = ctx.link.broadcast(Payload(fields, paper_bits=paper), away)
        return received.fields["probabilities"].data[0] if extra else share

    def after(self, before: Pool, after: Pool, cohort: Cohort) -> Increments:
        """After a round of the cohort that made `after` of `before`."""
        if not len(self.made):
            return self
        changed, last = torch.where(after.sums != before.sums, int(self.made), self.changed), self.last.clone()
        last[list(cohort.clients)] = int(self.made)
        return Increments(changed, self.made + 1, last)
