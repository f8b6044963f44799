"""Mean estimation as a task of its own: every round is one more one-shot estimate of the mean of the clients' vectors.

The simulation of D. Jhunjhunwala et al., "Leveraging spatial and temporal correlations in sparsified mean estimation",
NeurIPS 2021, appendix B, algorithm 1, for any compressor: nothing is learnt, nothing is sent down, and the squared
error is averaged over the rounds so far.

Shape legend: M clients of the cohort, D entries of a vector.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Models, Setup
from fedcomp.algorithm.updates.metrics import clients_memory, correlation
from fedcomp.client import LocalData
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key

BATCH = 64


@dataclass(frozen=True)
class MeanEstimationState:
    """What lives from round to round.

    Attributes:
        theta: [D] the last estimate. uplink: the compressor's memories, as they began if they are reset.
        errors: [3] float64 number of estimates, sum of their squared errors, sum of these squared.
    """

    theta: Tensor
    uplink: Memory
    errors: Tensor


@dataclass(frozen=True)
class MeanEstimation(Algorithm):
    """The mean squared error of a compressor on given vectors.

    A client's vector is the mean of its samples, so the sample itself where it holds one (`dataset=vectors`). With
    `memory=keep` what the compressor remembers of the same vectors serves the next round, as Rand-k-Temporal means it.
    """

    uplink: Compressor
    memory: Literal["reset", "keep"] = "reset"

    learns = "mean_vector"
    weights = "uniform"

    @property
    def remembers(self) -> bool:
        """Whether a round's memories serve the next one."""
        return self.memory == "keep"

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> MeanEstimationState:
        errors = torch.zeros(3, dtype=torch.float64, device=theta.device)
        return MeanEstimationState(theta, self.uplink.init(setup.num_clients, theta), errors)

    def round(self, state: MeanEstimationState, cohort: Cohort, ctx: Context) -> tuple[MeanEstimationState, Metrics]:
        """One estimate.

        Metrics: `mse`, the mean over the rounds so far of ||estimate - mean||^2, the mean being the cohort's weighted
        one; `mse/error`, its standard error, as if the rounds were independent; `mse/closed_form`, where the estimator
        states one by `expected_error(codec, x [M, D])`; `vectors/correlation`, R2/R1.
        """
        x = ctx.clients.map_clients(_mean_sample, cohort)
        estimate, uplink = ctx.send_up("vector", self.uplink, x, state.uplink, cohort)
        error = (estimate - cohort.weight @ x).square().sum(dtype=torch.float64)
        errors = state.errors + torch.stack((torch.ones_like(error), error, error.square()))

        metrics = _mean_and_error(errors) | {"vectors/correlation": correlation(x, cohort.weight)}
        if self.memory == "reset":
            weighted = x * (cohort.size * cohort.weight)[:, None]
            closed_form = self.uplink.estimator.expected_error(self.uplink.codec, weighted)
            metrics |= {"mse/closed_form": closed_form} if closed_form is not None else {}
        kept = uplink if self.memory == "keep" else state.uplink
        metrics |= clients_memory(uplink, cohort, x)
        return MeanEstimationState(estimate, kept, errors), metrics

    def evaluation_models(self, state: MeanEstimationState, key: Key) -> dict[str, Models]:
        return {"test": Models(state.theta[None], state.theta.new_zeros(1, 0))}


def _mean_sample(data: LocalData) -> Tensor:
    """[M, D] the mean of each client's samples."""
    total: Tensor | None = None
    for x, _, weight in data.samples(BATCH):
        rows = x.flatten(2)
        part = rows.sum(1) if weight is None else (rows * weight[:, :, None]).sum(1)
        if total is None:
            total = part
        else:
            total[: len(part)] += part
    assert total is not None
    return total / data.num_samples[:, None]


def _mean_and_error(errors: Tensor) -> dict[str, Tensor]:
    """Mean and standard error from [number, sum, sum of squares]; the error of a single estimate is 0."""
    num, mean = errors[0], errors[1] / errors[0]
    variance = (errors[2] / num - mean.square()).clamp(min=0)
    return {"mse": mean, "mse/error": (variance / (num - 1).clamp(min=1)).sqrt()}
