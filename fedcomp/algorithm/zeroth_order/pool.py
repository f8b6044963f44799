"""The pool of directions that a model is made of: its seeds, its coefficients, and how these get to the clients.

Shape legend: K directions of the pool, N clients, M of the cohort, S local steps, D parameters.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Clients, Context
from fedcomp.algorithm.zeroth_order.two_point import TwoPoint, values_at_once
from fedcomp.compressor.seed import seed_number
from fedcomp.core.cohort import Cohort, Listed
from fedcomp.core.pytree import put_rows, take_rows
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
    def init(cls, size: int, like: Tensor, notes_amplitudes: bool, key: Key) -> "Pool":
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

    def add(self, chosen: Tensor, scalars: Tensor, steps: Tensor) -> "Pool":
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
        positions = torch.arange(self.size, device=self.sums.device)
        if self.sums.device.type == "cpu":  # where looking costs nothing, directions of coefficient 0 are left out
            positions = positions[self.sums != 0]

        def part(some: Tensor) -> Tensor:
            z = two_point.directions(self.numbers[some], 1, 0, len(theta0))[:, 0]
            return self.sums[some].double() @ z.double()

        total = torch.zeros_like(theta0, dtype=torch.float64)
        if len(positions):
            for entries in clients.parallel_map(part, positions.split(max(1, values_at_once(theta0) // len(theta0)))):
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
        held: [N, K] float32 coefficients that each client had in its last round.
    """

    changed: Tensor
    made: Tensor
    last: Tensor
    held: Tensor

    @classmethod
    def init(cls, pool: Pool, num_clients: int) -> "Increments":
        """Before the first round; no clients: all coefficients are sent every time."""
        host = torch.device("cpu")
        changed = torch.full_like(pool.numbers[: None if num_clients else 0], -1)
        made = torch.zeros(min(num_clients, 1), dtype=torch.int64, device=host)
        last = torch.full((num_clients, 1), -1, dtype=torch.int64, device=host)
        return cls(changed, made, last, pool.sums.new_zeros(num_clients, pool.size))

    def send(self, pool: Pool, share: Tensor, cohort: Cohort, ctx: Context) -> tuple[Tensor, Tensor]:
        """The coefficients to the cohort, who make the model of them.

        A client gets all of them, or the (index, value) of those that changed since its last round, if that is shorter.
        How many changed goes first, which says what follows. The paper counts K numbers and a seed.

        Returns:
            As they arrive: the probabilities [K], and the coefficients [K] (`pool.sums` itself if they are counted) or,
            where clients add changes to their own, [M, K].
        """
        paper = 32 * pool.size + 32
        extra = {"probabilities": Field(share[None], Float())} if len(pool.amplitude) else {}
        whole = {"sums": Field(pool.sums[None], Float()), **extra}
        if not len(self.made):
            sent = Payload(whole, paper_bits=paper)
            received = ctx.link.broadcast(sent, cohort)
            sums = pool.sums if received is sent else received.fields["sums"].data[0]
            return received.fields["probabilities"].data[0] if extra else share, sums
        coefficients = take_rows(self.held, cohort).clone()  # the rows themselves where all take part
        row_of = {client: row for row, client in enumerate(cohort.clients)}
        last, width = self.last.numpy()[list(cohort.clients), 0].tolist(), bits_for(pool.size)
        for number in sorted(set(last)):
            away = Listed(tuple(client for client, own in zip(cohort.clients, last) if own == number))
            where = (self.changed >= max(number, 0)).nonzero()[:, 0]
            changes = Changes(pool.size, width)
            received = ctx.link.broadcast(
                Payload({**changes.fields(where, pool.sums), **extra}, paper_bits=paper), away
            )
            for row in (row_of[client] for client in away.clients):
                coefficients[row] = changes.add(received, coefficients[row])
            if extra and ctx.link.client in (None, *away.clients):
                share = received.fields["probabilities"].data[0]
        return share, coefficients

    def after(self, before: Pool, after: Pool, cohort: Cohort, held: Tensor) -> "Increments":
        """After a round of the cohort that made `after` of `before`, whose clients had `held` [M, K]."""
        if not len(self.made):
            return self
        changed, last = torch.where(after.sums != before.sums, int(self.made), self.changed), self.last.clone()
        last[list(cohort.clients)] = int(self.made)
        return Increments(changed, self.made + 1, last, put_rows(self.held, cohort, held))


@dataclass(frozen=True)
class Changes:
    """The message that brings a client's coefficients up to date: their number, and pairs or all K coefficients.

    Attributes:
        size: K. width: bits of an index.
    """

    size: int
    width: int

    def fields(self, where: Tensor, sums: Tensor) -> dict[str, Field]:
        """The fields, if the coefficients at `where` changed."""
        number = len(where)
        pairs = self._pairs(number)
        values = sums[where] if self._pairs(number) or not number else sums

        def counted(num: int) -> Tensor:
            return where.new_full((1,), num)

        return {
            "number": Field(where.new_full((1, 1), number), Unsigned(bits_for(self.size + 1), self.size + 1)),
            "index": Field(
                where[None, :pairs],
                Unsigned(self.width),
                counted(pairs),
                count_known=True,
                count_from=lambda row: self._pairs(int(row["number"])),
            ),
            "sums": Field(
                values[None],
                Float(),
                counted(len(values)),
                count_known=True,
                count_from=lambda row: self._pairs(int(row["number"])) or self._all(int(row["number"])),
            ),
        }

    def add(self, received: Payload, held: Tensor) -> Tensor:
        """[K] the coefficients of a client that held others."""
        index, values = received.fields["index"].data[0], received.fields["sums"].data[0]
        if len(values) == self.size:
            return values
        after = held.clone()
        after[index] = values
        return after

    def _pairs(self, number: int) -> int:
        """Pairs in a message of so many changes: all of them, or none where all K coefficients are shorter."""
        return number if number * (32 + self.width) < 32 * self.size else 0

    def _all(self, number: int) -> int:
        """Coefficients in a message without pairs: none if nothing changed."""
        return self.size if number else 0
