"""FedKSeed: every model is the first one plus a combination of K fixed random directions; its K coefficients travel.

Z. Qin, D. Chen, B. Qian, B. Ding, Y. Li, S. Deng, "Federated full-parameter tuning of billion-sized language models
with communication cost under 18 kilobytes", ICML 2024 (arXiv:2312.06353); branch FedKSeed of `alibaba/FederatedScope`.
The pool z_1 ... z_K is drawn once, from the run's seed. The server holds coefficients a, and the model is
x_0 - eta sum_j a_j z_j. A client is sent a, and makes tau steps, each along a direction of the pool that it draws:

    g = (f(x + mu z_j) - f(x - mu z_j)) / (2 mu);    x <- x - eta g z_j

and sends its pairs (j, g). Server: a_j <- a_j + sum_i w_i (sum of client i's g of direction j). Server and clients
define the model as the sum above, in the order of the pool; a client's own path differs from it by rounding.

`sampling: amplitude` is FedKSeed-Pro: h_j is the mean of |g| (cut at 1000) over all uses of z_j and one entry 0, as in
the code, and j is drawn with probabilities softmax((h - min h) / (max h - min h)), so that none is more than e times
another. The expected step is then not along the gradient; `unbiased_sampling` divides g by K pi_j, which is ours.

x - x_0 stays in the span of the pool: with K < D a share of about 1 - K / D of the gradient is never seen, and the
expected step inside it is D / K times as long. Refused by having no such options: weight decay and schedules, under
which the sum is not the path. A step that `clip` skips is sent as 0, which the server takes for no use.

The paper counts 32 bits for each number of the pairs, and 32 K + 32 down; here an index takes ceil(log2 K) bits, and
the probabilities of Pro are sent too.

Shape legend: M clients of the cohort, A of them in a chunk, D parameters, C running statistics, K directions of the
pool, S local steps (tau).
"""

import logging
import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.zeroth_order.pool import Increments, Pool
from fedcomp.algorithm.zeroth_order.two_point import RunningStats, TwoPoint, check_stats, finite
from fedcomp.client import Batch, Batching, LocalData
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Whole, Within
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float, Unsigned, bits_for

log = logging.getLogger("fedcomp")

MANY_DRAWS = 1e10
"""Draws of a round above which a run warns: a minute and more on a CPU."""
Trained = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class FedKSeedState:
    """What lives from round to round.

    Attributes:
        theta0: [D] the first model. theta: [D] the model of the coefficients. stats: [C] running statistics.
        pool: seeds and coefficients. increments: who knows which of these.
    """

    theta0: Tensor
    theta: Tensor
    stats: Tensor
    pool: Pool
    increments: Increments


@dataclass(frozen=True)
class FedKSeed(TwoPoint, Algorithm):
    """Zeroth-order steps along directions of a fixed pool; coefficients down, pairs up.

    Attributes:
        pool, steps, lr: K, tau and eta. mu, difference, distribution: see `TwoPoint`.
        unbiased_sampling: divide by K pi_j.
        choice: of a step's direction: sent as its index, or derived from the run's seed, the round and the client.
            Where K coefficients are shorter than the pairs, a client sends its sums (amplitudes need each g).
        sends: delta: those that changed since the client's last round, where that is shorter than all K.
        clip: skips steps whose losses are not finite, too. running_stats: as in DeComFL.
    """

    exact_losses: ClassVar[bool] = True

    pool: Annotated[int, Whole()] = 4096
    steps: Annotated[int, Whole()] = 20
    lr: Annotated[float, Within("(0, inf)", "the length of a local step")] = 1e-3
    batch_size: Annotated[int, Whole()] = 10
    sampling: Literal["uniform", "amplitude"] = "uniform"
    unbiased_sampling: bool = False
    choice: Literal["sent", "derived"] = "sent"
    sends: Literal["pool", "delta"] = "pool"
    clip: Annotated[float | None, Within("(0, inf)", "the largest difference of two losses")] = None
    running_stats: RunningStats = "refuse"
    weights: str = "samples"

    when_slow = "steps along random directions learn slowly: more rounds, a larger algorithm.lr or more algorithm.steps"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling == "amplitude" and self.pool < 2:
            raise ValueError(
                "algorithm.pool=1 leaves nothing to choose for algorithm.sampling=amplitude: take 2 or more"
            )

    @property
    def sends_sums(self) -> bool:
        """Whether a client's K sums are shorter than its pairs."""
        pair = 32 + (bits_for(self.pool) if self.choice == "sent" else 0)
        return self.sampling == "uniform" and 32 * self.pool < pair * self.steps

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedKSeedState:
        """The first model and its pool. Raises ValueError: running statistics, which nobody asked to gather."""
        check_stats("fedkseed", self.running_stats, stats)
        if self.pool * theta.shape[0] > MANY_DRAWS:
            log.warning(
                "algorithm.pool=%d for %d parameters: a round draws up to %.0e numbers to make its model; take a "
                "smaller pool or model",
                self.pool,
                theta.shape[0],
                self.pool * theta.shape[0],
            )
        pool = Pool.init(self.pool, theta, self.sampling == "amplitude", setup.key.fold_in("pool"))
        increments = Increments.init(pool, setup.num_clients if self.sends == "delta" else 0)
        return FedKSeedState(theta, theta, stats, pool, increments)

    def round(self, state: FedKSeedState, cohort: Cohort, ctx: Context) -> tuple[FedKSeedState, Metrics]:
        """One round.

        Metrics: `message/scalar` [M] largest |g|; `evaluations` losses that a client computes; of the coefficients
        `pool/used`, the share that is not 0, `pool/max_share`, the largest of |a_j| / sum |a|, and `pool/entropy` of
        these shares, in bits.
        """
        pool = state.pool
        share, sums = state.increments.send(pool, pool.probabilities(), cohort, ctx)
        start = self._start(state, sums, ctx)
        stats = ctx.send_stats(state.stats, cohort)
        chosen = self._choose(share, cohort, ctx)
        scalars, loss, new_stats = self._train(start, state, stats, chosen, share, cohort, ctx)
        received, chosen = self._send_up(scalars, chosen, share, ctx)
        stats = ctx.gather_stats(new_stats, cohort)

        kept = finite(received)
        scaled = kept if self.sends_sums else kept * self._factor(share, chosen)
        after = pool.add(chosen, kept, cohort.weight[:, None] * scaled)
        theta = after.model(state.theta0, self.lr, self, ctx.clients)
        evaluations = self.steps * self.evaluations(1) + self.last_forward(stats)
        metrics = {
            "train/loss": loss,
            "message/scalar": received.abs().amax(1),
            "evaluations": theta.new_full((), evaluations),
            **after.spread(),
        }
        increments = state.increments.after(pool, after, cohort, sums)
        return FedKSeedState(state.theta0, theta, stats, after, increments), metrics

    def _start(self, state: FedKSeedState, sums: Tensor, ctx: Context) -> Tensor:
        """The models [D] or [M, D] of the coefficients that clients have; the server's own, if it has the same."""
        pool = state.pool
        if sums is pool.sums or bool((sums == pool.sums).all()):
            return state.theta
        each = [replace(pool, sums=row) for row in sums.view(-1, pool.size)]
        return torch.stack([one.model(state.theta0, self.lr, self, ctx.clients) for one in each])

    def _choose(self, share: Tensor, cohort: Cohort, ctx: Context) -> Tensor:
        """[M, S] int64 directions of the clients' steps."""
        words = ctx.common("choice", cohort).key.bits(cohort.ids, self.steps)
        if self.sampling == "uniform":
            return (words * self.pool) >> 32
        ends = share.double().cumsum(0)
        uniform = (words.double() * 2.0**-32).contiguous()
        return torch.searchsorted(ends / ends[-1], uniform, right=True).clamp_(max=self.pool - 1)

    def _factor(self, share: Tensor, chosen: Tensor) -> Tensor:
        """What scalars of the directions `chosen` are multiplied by."""
        return 1 / (self.pool * share[chosen]) if self.unbiased_sampling else torch.ones_like(share[chosen])

    def _send_up(self, scalars: Tensor, chosen: Tensor, share: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """Scalars and their directions, [M, S] or [M, K], as the server receives them."""
        paper = 64 * self.steps
        if self.sends_sums:
            own = scalars.new_zeros(len(scalars), self.pool, dtype=torch.float64)
            own.scatter_add_(1, chosen, scalars.double() * self._factor(share, chosen).double())
            payload = Payload({"sums": Field(own.to(torch.float32), Float())}, paper_bits=paper)
            (received,) = ctx.link.up(payload).expect(sums=self.pool)
            return received, torch.arange(self.pool, device=chosen.device).expand(len(received), -1)
        fields = {"scalars": Field(scalars, Float())}
        if self.choice == "sent":
            fields = {"index": Field(chosen, Unsigned(bits_for(self.pool), self.pool)), **fields}
        message = ctx.link.up(Payload(fields, paper_bits=paper))
        received = message.fields["scalars"].data
        return received, message.fields["index"].data if self.choice == "sent" else chosen

    def _train(
        self,
        start: Tensor,
        state: FedKSeedState,
        stats: Tensor,
        chosen: Tensor,
        share: Tensor,
        cohort: Cohort,
        ctx: Context,
    ) -> Trained:
        """Scalars [M, S], mean losses [M] of the steps that were made, statistics [M, C]."""
        forward = self.at_centre
        largest = math.inf if self.clip is None else self.clip / (self.mu if forward else 2 * self.mu)

        def train(data: LocalData, y: Tensor, stats: Tensor, chosen: Tensor, factor: Tensor) -> Trained:
            y, found, losses = y.clone(), [], []
            for k, (x, targets, weight) in enumerate(data.batches(Batching(self.batch_size, steps=self.steps))):
                batch, centre = Batch(x, targets, weight, stats), None
                if forward:
                    centre, after = data.losses(y[:, None], batch, k)
                    centre, stats = centre[:, 0], after[:, 0]
                z = self.directions(state.pool.numbers[chosen[:, k]], 1, 0, y.shape[1])
                scalars, loss = self.scalars(data, y, z, batch, k, centre)
                if self.clip is not None:
                    skipped = ~(scalars.abs() <= largest)  # also what is not a number
                    scalars, loss = scalars.masked_fill(skipped, 0.0), loss.masked_fill(skipped[:, 0], math.nan)
                y -= self.lr * (scalars * factor[:, k : k + 1]).to(y.dtype) * z[:, 0].to(y.dtype)
                found.append(scalars)
                losses.append(loss)
                if k == self.steps - 1 and self.last_forward(stats[0]):
                    stats = data.losses(y[:, None], batch, k)[1][:, 0]
            mean = torch.stack(losses, 1)
            mean = mean.mean(1) if self.clip is None else mean.nanmean(1)
            return torch.cat(found, 1), mean.to(torch.float32), stats

        rows = (part.expand(cohort.size, -1) for part in (start, stats))
        return ctx.clients.map_clients(train, cohort, *rows, chosen, self._factor(share, chosen))
