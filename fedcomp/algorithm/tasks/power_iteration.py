"""Distributed power iteration: the principal direction of data that stays with the clients.

An application of D. Jhunjhunwala et al., "Leveraging spatial and temporal correlations in sparsified mean estimation",
NeurIPS 2021, appendix C: the server sends its unit vector w; client i answers with A_i w, A_i = X_i^T X_i / n_i of its
n_i normalised samples; the server takes the weighted mean and divides it by its length. The weights are the clients'
shares of the samples, so that the mean of all A_i is that of the whole data. What is subtracted from the samples is the
model's choice (`model.centre`). Where a downlink is lossy it carries the step to the new vector, and both ends bring
the result back to length 1.

Shape legend: M clients of the cohort, A of a chunk still at work, D features, B batch.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.downlinks.downlink import CompressedDownlink
from fedcomp.algorithm.updates.metrics import clients_memory, correlation, servers_memory
from fedcomp.client import LocalData
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Whole

LENGTH_FLOOR = 1e-30


@dataclass(frozen=True)
class PowerIterationState:
    """What lives from round to round.

    Attributes:
        theta: [D] w, of length 1. stats: [D] what is subtracted from every sample, or [0]; known to all, never sent.
        uplink, downlink: memories of the compressors, one row a client and one for the server.
    """

    theta: Tensor
    stats: Tensor
    uplink: Memory
    downlink: Memory


@dataclass(frozen=True)
class PowerIteration(Algorithm):
    """w <- sum_i p_i A_i w, divided by its length.

    Attributes:
        uplink: carries A_i w to the server. downlink: carries w, or its step, back.
    """

    uplink: Compressor
    downlink: Compressor
    batch_size: Annotated[int, Whole()] = 64

    learns = "principal_direction"
    weights = "samples"
    normalises_weights = True

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> PowerIterationState:
        return PowerIterationState(
            theta, stats, self.uplink.init(setup.num_clients, theta), self.downlink.init(1, theta)
        )

    def round(self, state: PowerIterationState, cohort: Cohort, ctx: Context) -> tuple[PowerIterationState, Metrics]:
        """One multiplication; `vectors/correlation` is R2/R1 of what the clients have to send."""
        down = CompressedDownlink.of(self.downlink)
        w, none, downlink = down.send_model(state.theta, state.theta.new_zeros(0), state.downlink, cohort, ctx)
        rows = w.expand(cohort.size, -1), state.stats.expand(cohort.size, -1)
        products = ctx.clients.map_clients(self._multiply, cohort, *rows)
        mean, uplink = ctx.send_up("product", self.uplink, products, state.uplink, cohort)
        unit = _unit(mean, state.theta)
        new, _, downlink = down.send_change(state.theta, unit, none, downlink, cohort, ctx)
        metrics = {
            "vectors/correlation": correlation(products, cohort.weight),
            **clients_memory(uplink, cohort, products),
            **servers_memory(downlink, unit - state.theta),
        }
        return PowerIterationState(_unit(new, state.theta), state.stats, uplink, downlink), metrics

    def _multiply(self, data: LocalData, w: Tensor, centre: Tensor) -> Tensor:
        """[M, D] A_i w for rows w [M, D], by two products with the samples instead of the matrix."""
        total = torch.zeros_like(w)
        for x, _, weight in data.samples(self.batch_size):
            active = len(x)
            rows = x.flatten(2)
            if centre.shape[1]:
                rows = rows - centre[:active, None]
            along = torch.bmm(rows, w[:active, :, None])  # [A, B, 1]
            if weight is not None:
                along = along * weight[:, :, None]
            total[:active] += torch.bmm(along.transpose(1, 2), rows)[:, 0]
        return total / data.num_samples[:, None]


def _unit(x: Tensor, otherwise: Tensor) -> Tensor:
    """x [D] divided by its length; `otherwise` where it has none."""
    length = x.norm()
    return torch.where(length > LENGTH_FLOOR, x / length.clamp(min=LENGTH_FLOOR), otherwise)
