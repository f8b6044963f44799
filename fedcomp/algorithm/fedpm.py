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

Shape legend: M clients of the cohort, D parameters, d of them masked.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics, Setup
from fedcomp.algorithm.masks.probabilities import MaskProbabilities, MaskState, mean_entropy
from fedcomp.algorithm.masks.training import masked_part
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Whole
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Arithmetic, Coding, Shortest, Unsigned


@dataclass(frozen=True)
class FedPM(MaskProbabilities):
    """Probabilistic masks up, probabilities down.

    Attributes:
        client to test_samples: see `MaskProbabilities`.
        coding: plain, one bit an entry; arithmetic, coded by the mask's share of ones, sent beside it; prior, coded by
            the probabilities theta that the server sent. A mask that is shorter plain is sent plain: one bit says
            which, so that a message has at most d + 1 bits.
    """

    reset_every: Annotated[int, Whole(0, "a number of rounds; 0 for never")] = 1
    coding: Literal["plain", "arithmetic", "prior"] = "plain"
    weights: str = "uniform"
    persist_optimizer: bool = False

    normalises_weights = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sends == "counts" and self.weights != "uniform":
            raise ValueError("algorithm.sends=counts needs algorithm.weights=uniform: weighted masks are no counts")
        if self.persist_optimizer:
            self.client.check_persistent()

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> MaskState:
        """Frozen weights and first probabilities, both from the run's seed. Raises ValueError: nothing to mask."""
        first = self.first_state(theta, stats, masked_part(setup.tensors, "fedpm"), setup)
        if not self.persist_optimizer:
            return first
        return replace(first, optimizer=self.client.init_persistent(setup.num_clients, theta))

    def round(self, state: MaskState, cohort: Cohort, ctx: Context) -> tuple[MaskState, Metrics]:
        """One round; `mask/ones` [M] is the share of ones sent, `mask/entropy` theta's mean entropy in bits."""
        part = masked_part(ctx.clients.tensors, "fedpm")
        received = self.send_down(state, part, cohort, ctx)
        start = received.weights, received.theta[None], received.stats
        local, stats = self.train_masks(*start, part, cohort, ctx, state.optimizer)
        mask = ctx.sender_key("mask").uniform(cohort.ids, part.size) < part.take(local.value)
        coding = self._coding(part.take(received.theta))
        payload = Payload({"mask": Field(mask.to(torch.uint8), coding)}, paper_bits=part.size)
        (masks,) = ctx.link.up(payload).expect(mask=part.size)
        gathered = self.gather_rest(received, local, part, cohort, ctx)
        gathered = replace(gathered, stats=stats, optimizer=local.memory)

        keeps = bool(self.reset_every == 0 or ctx.round % self.reset_every)  # else the posterior is reset
        share = cohort.weight * (cohort.size / cohort.weight.sum())
        sums = torch.mv(masks.t().to(torch.float32), share if self.weights != "uniform" else torch.ones_like(share))
        after = self.count_masks(gathered, sums, part, cohort.size, keeps)
        metrics = {
            "train/loss": local.loss,
            "mask/ones": mask.to(torch.float32).mean(1),
            "mask/entropy": mean_entropy(part.take(after.theta)),
        }
        return after, metrics

    def _coding(self, theta: Tensor) -> Coding:
        if self.coding == "plain":
            return Unsigned(1)
        coded = Arithmetic() if self.coding == "arithmetic" else Arithmetic(theta)
        return Shortest((Unsigned(1), coded))  # a mask of even odds, or an unlikely one, takes more bits coded
