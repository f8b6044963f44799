"""What FedPM and methods that grew out of it share: a server's probabilities of a mask, and their Beta posterior.

B. Isik, F. Pase, D. Gunduz, T. Weissman, M. Zorzi, "Sparse random networks for communication-efficient federated
learning", ICLR 2023 (arXiv:2209.15328). Clients train scores over frozen weights from the server's theta
(masks/training.py) and send masks; counts of the masks that came since the last reset are the posterior's.

Shape legend: M clients of the cohort, N in all, D parameters, d of them masked, C running statistics.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Models, Setup
from fedcomp.algorithm.downlinks.downlink import DenseModel, Downlink
from fedcomp.algorithm.downlinks.mask_counts import BetaPosterior, CountsDownlink, MaskCounts, PriorCount, Smoothing
from fedcomp.algorithm.masks.frozen_weights import FrozenWeights
from fedcomp.algorithm.masks.training import MaskTraining, TestedMask, masked_models
from fedcomp.client import LocalResult
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterSubset
from fedcomp.core.ranges import Whole
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class MaskState:
    """What lives from round to round.

    Attributes:
        weights: [D] frozen weights; the values of normalisation layers among them.
        theta: [D] probabilities of the mask; 1 for what is not masked. stats: [C] running statistics.
        ones: [D] masks received since the last reset that have a one. total: [1] masks since then.
        optimizer: each client's persistent optimizer state, [N, D] and [N, 1] (client/minibatch.py); () for none.
    """

    weights: Tensor
    theta: Tensor
    stats: Tensor
    ones: Tensor
    total: Tensor
    optimizer: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class MaskProbabilities(FrozenWeights, MaskTraining, Algorithm):
    """Probabilities down; how masks come up is the method's own.

    Attributes:
        client, ste, clamp, batchnorm_training: see `MaskTraining`. frozen, gain, theta0: see `FrozenWeights`.
        prior, smoothing: see `BetaPosterior`.
        sends: theta, floats; counts, the posterior's counts (log2(K + 1) bits an entry after a reset in each round),
            and nothing in the first round.
    """

    prior: PriorCount = 1.0
    smoothing: Smoothing = "affine"
    sends: Literal["theta", "counts"] = "theta"
    test: TestedMask = "sample"
    test_samples: Annotated[int, Whole()] = 3

    @property
    def posterior(self) -> BetaPosterior:
        """What makes theta of the masks that came up."""
        return BetaPosterior(self.prior, self.smoothing, self.clamp)

    @property
    def down(self) -> Downlink[MaskCounts, Tensor]:
        """How theta gets to the clients."""
        return CountsDownlink(self.posterior) if self.sends == "counts" else DenseModel()

    def first_state(self, theta: Tensor, stats: Tensor, part: ParameterSubset, setup: Setup) -> MaskState:
        """Frozen weights and first probabilities, both from the run's seed."""
        weights, first = self.first_masks(theta, part, setup)
        return MaskState(weights, first, stats, torch.zeros_like(theta), theta.new_zeros(1))

    def send_down(self, state: MaskState, part: ParameterSubset, cohort: Cohort, ctx: Context) -> MaskState:
        """The state as clients receive it: theta by the downlink, normalisation if it is trained, statistics."""
        counts = MaskCounts(part.take(state.ones), state.total)
        received, stats, _ = self.down.send_model(part.take(state.theta), state.stats, counts, cohort, ctx)
        weights = state.weights
        if self.batchnorm_training == "trained":
            rest = ctx.send_dense("normalisation", part.rest.take(weights), cohort, paper_bits=0)
            weights = part.rest.put(weights, rest)
        return replace(state, weights=weights, theta=part.put(state.theta, received), stats=stats)

    def gather_rest(
        self, state: MaskState, local: LocalResult, part: ParameterSubset, cohort: Cohort, ctx: Context
    ) -> MaskState:
        """The state with normalisation as it comes up beside the masks, if it is trained."""
        if self.batchnorm_training != "trained":
            return state
        rest = ctx.gather_dense("normalisation", part.rest.take(local.value), cohort, paper_bits=0)
        return replace(state, weights=part.rest.put(state.weights, rest))

    def count_masks(self, state: MaskState, sums: Tensor, part: ParameterSubset, num: int, keeps: bool) -> MaskState:
        """The state with theta of the masks' posterior.

        Args:
            sums: [d] how many of the round's masks have a one. num: how many masks there are.
            keeps: count the masks since the last reset too; false is a reset.
        """
        ones = part.take(state.ones) + sums if keeps else sums
        total = state.total + num if keeps else torch.full_like(state.total, num)
        theta = part.put(state.theta, self.posterior.mode(MaskCounts(ones, total)))
        return replace(state, theta=theta, ones=part.put(state.ones, ones), total=total)

    def evaluation_models(self, state: MaskState, key: Key) -> dict[str, Models]:
        """Drawn masks, and w * theta and w * [theta > 1/2] beside them."""
        return masked_models(state.weights, state.theta, state.stats, key, self.test, self.test_samples)


def mean_entropy(theta: Tensor) -> Tensor:
    """Mean entropy in bits of masks of probabilities theta."""
    return (torch.special.entr(theta) + torch.special.entr(1 - theta)).mean() / math.log(2)
