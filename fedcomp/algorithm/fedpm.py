"""FedPM: clients learn probabilities of a mask over frozen random weights, and send one drawn mask.

B. Isik, F. Pase, D. Gunduz, T. Weissman, M. Zorzi, "Sparse random networks for communication-efficient federated
learning", ICLR 2023 (arXiv:2209.15328), algorithms 1 and 2; official code `BerivanIsik/sparse-random-networks`.

The server holds theta; a client trains scores from logit(theta) (masks/training.py), draws m_k ~ Bernoulli(sigma(s_k))
and sends it. The server's Beta posterior has counts a = prior + sum m_k, b = prior + sum (1 - m_k), and theta is its
mode (a - 1) / (a + b - 2); with prior = 1 and a reset in every round, as in the code, the mean of the masks.

theta would soon be 0 or 1, where scores are infinite. The code squeezes every mask before it is "sent"
(0 -> 0.01, 1 -> 0.99); here the bits are sent and the server squeezes its mode, which is the same (`smoothing`).
The weights' constant is sqrt(2 / fan_in), as in the paper; the code has e / sqrt(fan_in) (`gain`). In the code a
client's Adam moments and number of steps live on from one of its rounds to the next (`persist_optimizer`), although its
scores are set anew. The paper counts H(f) bits a parameter, an entropy that is never coded; `coding: arithmetic` codes
it, and counts what it writes.

Shape legend: M clients of the cohort, D parameters, d of them masked, C running statistics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics, Models, Setup
from fedcomp.algorithm.downlinks.downlink import DenseModel, Downlink
from fedcomp.algorithm.downlinks.mask_counts import BetaPosterior, CountsDownlink, MaskCounts
from fedcomp.algorithm.masks.frozen_weights import FrozenWeights, first_probabilities
from fedcomp.algorithm.masks.training import TESTS, MaskTraining, masked_models, masked_part
from fedcomp.algorithm.updates.dense_messages import gather, gather_stats, send, send_stats
from fedcomp.client import LocalSolver
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.core.validate import check_choice, check_count
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Arithmetic, Coding, Shortest, Unsigned

CODINGS = ("plain", "arithmetic", "prior")
DOWNLINKS = ("theta", "counts")


@dataclass(frozen=True)
class FedPMState:
    """What lives from round to round.

    Attributes:
        weights: [D] frozen weights; the values of normalisation layers among them.
        theta: [D] probabilities of the mask; 1 for what is not masked. stats: [C] running statistics.
        ones: [D] masks received since the last reset that have a one. total: [1] masks since then.
        optimizer: each client's persistent optimiser state, [N, D] and [N, 1] (client/minibatch.py); () for none.
    """

    weights: Tensor
    theta: Tensor
    stats: Tensor
    ones: Tensor
    total: Tensor
    optimizer: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class FedPM:
    """Probabilistic masks up, probabilities down.

    Attributes:
        client: trains the scores.
        frozen, gain: see masks/frozen_weights.py.
        theta0: first probabilities, "normal" for sigma(N(0, 1)), or a number.
        ste, clamp, normalisation: see masks/training.py.
        prior: lambda_0 of the Beta posterior, at least 1. reset_every: rounds between its resets; 0: never.
        smoothing: affine, clamp + (1 - 2 clamp) mode, or clip to [clamp, 1 - clamp].
        coding: plain, one bit an entry; arithmetic, coded by the mask's share of ones, sent beside it; prior, coded by
            the probabilities theta that the server sent. A mask that is shorter plain is sent plain: one bit says
            which, so that a message has at most d + 1 bits.
        downlink: theta, floats; counts, the posterior's counts (log2(K + 1) bits an entry after a reset in each round),
            and nothing in the first round.
        test: what is logged as "test": sample, the mean over `test_samples` drawn masks, expected or threshold.
        weights: "uniform", as in the paper, or "samples".
        persist_optimizer: keep each client's moments from round to round, 2 D floats a client.
    """

    client: LocalSolver
    frozen: str = "signed_constant"
    gain: str | float = "kaiming"
    theta0: str | float = "normal"
    ste: str = "identity"
    clamp: float = 0.01
    normalisation: str = "frozen"
    prior: float = 1.0
    reset_every: int = 1
    smoothing: str = "affine"
    coding: str = "plain"
    downlink: str = "theta"
    test: str = "sample"
    test_samples: int = 3
    weights: str = "uniform"
    persist_optimizer: bool = False

    def __post_init__(self) -> None:
        check_choice("algorithm.coding", self.coding, CODINGS)
        check_choice("algorithm.downlink", self.downlink, DOWNLINKS)
        check_choice("algorithm.test", self.test, TESTS)
        check_choice("algorithm.weights", self.weights, ("samples", "uniform"))
        check_count("algorithm.test_samples", self.test_samples)
        if not isinstance(self.reset_every, int) or self.reset_every < 0:
            raise ValueError(f"algorithm.reset_every={self.reset_every} must be a number of rounds, or 0 for never")
        if self.downlink == "counts" and self.weights != "uniform":
            raise ValueError("algorithm.downlink=counts needs algorithm.weights=uniform: weighted masks are no counts")
        if self.persist_optimizer and not isinstance(self.client, MinibatchSolver):
            name = type(self.client).__name__.lower()
            raise ValueError(
                f"algorithm.persist_optimizer=true makes no sense for client={name}, which cannot go on from "
                "an earlier round: take client=adam_scores or sgd"
            )
        _ = self.training, self.frozen_weights, self.posterior  # they check their own options

    @property
    def training(self) -> MaskTraining:
        """Local training."""
        return MaskTraining(self.client, self.ste, self.clamp, self.normalisation)

    @property
    def frozen_weights(self) -> FrozenWeights:
        """The frozen weights' distribution."""
        return FrozenWeights(self.frozen, self.gain)

    @property
    def posterior(self) -> BetaPosterior:
        """What makes theta of the masks that came up."""
        return BetaPosterior(self.prior, self.smoothing, self.clamp)

    @property
    def down(self) -> Downlink[MaskCounts, Tensor]:
        """How theta gets to the clients."""
        return CountsDownlink(self.posterior) if self.downlink == "counts" else DenseModel()

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedPMState:
        """Frozen weights and first probabilities, both from the run's seed. Raises ValueError: nothing to mask."""
        part = masked_part(setup.tensors, "fedpm")
        weights = self.frozen_weights.draw(theta, setup.tensors, setup.key.fold_in("weights"))
        first = part.put(
            torch.ones_like(theta), part.take(first_probabilities(self.theta0, theta, setup.key.fold_in("theta")))
        )
        optimizer: tuple[Tensor, ...] = ()
        if self.persist_optimizer:
            assert isinstance(self.client, MinibatchSolver)
            optimizer = self.client.init_persistent(setup.num_clients, theta)
        return FedPMState(weights, first, stats, torch.zeros_like(theta), theta.new_zeros(1), optimizer)

    def round(self, state: FedPMState, cohort: Cohort, ctx: Context) -> tuple[FedPMState, Metrics]:
        """One round; `mask/ones` [M] is the share of ones sent, `mask/entropy` theta's mean entropy in bits."""
        part = masked_part(ctx.clients.tensors, "fedpm")
        counts = MaskCounts(part.take(state.ones), state.total)
        received, _ = self.down.model(part.take(state.theta), counts, cohort, ctx)
        theta = part.put(state.theta, received)
        weights = state.weights
        if self.normalisation == "trained":
            weights = part.rest.put(weights, send("normalisation", part.rest.take(weights), cohort, ctx))
        stats = send_stats(state.stats, cohort, ctx)

        memory = tuple(take_rows(rows, cohort) for rows in state.optimizer)
        local = self.training.run(weights, theta[None], stats, part, cohort, ctx, memory)
        optimizer = tuple(put_rows(rows, cohort, new) for rows, new in zip(state.optimizer, local.memory, strict=True))
        mask = ctx.private_key("mask").uniform(cohort.ids, part.size) < part.take(local.theta)
        payload = Payload({"mask": Field(mask.to(torch.uint8), self._coding(part.take(theta)))}, paper_bits=part.size)
        (masks,) = ctx.link.up(payload).expect(mask=part.size)
        if self.normalisation == "trained":
            weights = part.rest.put(
                weights, gather("normalisation", part.rest.take(local.theta), cohort, ctx, paper_bits=0)
            )
        stats = gather_stats(local.stats, cohort, ctx)

        keeps = bool(self.reset_every == 0 or ctx.round % self.reset_every)  # else the posterior is reset
        share = cohort.weight * (cohort.size / cohort.weight.sum())
        sums = torch.mv(masks.t().to(torch.float32), share if self.weights == "samples" else torch.ones_like(share))
        ones = counts.ones + sums if keeps else sums
        total = state.total + cohort.size if keeps else torch.full_like(state.total, cohort.size)
        guess = part.put(theta, self.posterior.mode(MaskCounts(ones, total)))
        after = FedPMState(weights, guess, stats, part.put(state.ones, ones), total, optimizer)
        entropy = torch.special.entr(part.take(after.theta)) + torch.special.entr(1 - part.take(after.theta))
        metrics = {
            "train/loss": local.loss,
            "mask/ones": mask.to(torch.float32).mean(1),
            "mask/entropy": entropy.mean() / math.log(2),
        }
        return after, metrics

    def evaluation_models(self, state: FedPMState, key: Key) -> dict[str, Models]:
        """Drawn masks, and w * theta and w * [theta > 1/2] beside them."""
        return masked_models(state.weights, state.theta, state.stats, key, self.test, self.test_samples)

    def _coding(self, theta: Tensor) -> Coding:
        if self.coding == "plain":
            return Unsigned(1)
        coded = Arithmetic() if self.coding == "arithmetic" else Arithmetic(theta)
        return Shortest((Unsigned(1), coded))  # a mask of even odds, or an unlikely one, takes more bits coded
