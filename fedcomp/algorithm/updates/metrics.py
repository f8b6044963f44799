"""What a round logs of the vectors that were sent: how alike they were, and how long the memories of errors are.

`memory/norm` [M] is ||e_i|| of each client after its message, to be compared with `update/norm` [M]; the server's is
`memory/norm_down`, to be compared with `update/norm_down`, the length of what it sent. A memory that goes on growing
against what is sent says that messages do not keep up with it. Nothing is read from the device.

Shape legend: M clients of the cohort, D parameters.
"""

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Metrics
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import take_rows

TINY = torch.finfo(torch.float64).tiny


def clients_memory(memory: Memory, cohort: Cohort, x: Tensor | None = None) -> Metrics:
    """`memory/norm` [M] of the cohort's clients after they sent; {} where they remember nothing.

    Args:
        x: [M, D] what they had to send, for methods that do not log `update/norm` otherwise.
    """
    if not memory.sender.shape[1:].numel():
        return {}
    found = {"memory/norm": lengths(take_rows(memory.sender, cohort))}
    return found if x is None else {**found, "update/norm": lengths(x)}


def servers_memory(memory: Memory, x: Tensor) -> Metrics:
    """`memory/norm_down` of the server after it sent x [D], and `update/norm_down` of x; {} without a memory."""
    if not memory.sender.shape[1:].numel():
        return {}
    return {"memory/norm_down": lengths(memory.sender)[0], "update/norm_down": lengths(x[None])[0]}


def vectors(uplink: Compressor, x: Tensor, memory: Memory, cohort: Cohort) -> Metrics:
    """Of what clients are about to send, x [M, D], as far as the uplink gains by it.

    `predictor/ratio`, sum ||x_i - predicted||^2 / sum ||x_i||^2: above 1 the prediction does harm.
    `vectors/correlation`, R2 / R1 (`correlation`).
    """
    found, coded = {}, uplink.coded(x)
    if uplink.predicts:
        left = coded - uplink.predicted(memory, cohort)
        size = coded.square().sum().clamp(min=torch.finfo(coded.dtype).tiny)
        found["predictor/ratio"] = left.square().sum() / size
    if uplink.uses_correlation:
        found["vectors/correlation"] = correlation(coded, cohort.weight)
    return found


def lengths(rows: Tensor) -> Tensor:
    """[M] ||row|| of rows [M, ...]."""
    return torch.linalg.vector_norm(rows.flatten(1), dim=1)


def correlation(x: Tensor, weight: Tensor) -> Tensor:
    """R2 / R1 of the vectors M w_i x_i, in [-1, M - 1]; 0 where all are zero.

    R1 = sum_i ||x_i||^2 and R2 = 2 sum_{i<j} <x_i, x_j> = ||sum_i x_i||^2 - R1, in the notation of D. Jhunjhunwala et
    al., "Leveraging spatial and temporal correlations in sparsified mean estimation", NeurIPS 2021. It needs the true
    vectors, which no server has: a figure of the simulation, not of the method.

    Args:
        x: [M, D] vectors before compression. weight: [M] the cohort's; rows of weight 0 change nothing.
    """
    rows = (x * (len(weight) * weight)[:, None]).double()
    r1 = rows.square().sum()
    return torch.where(r1 > 0, rows.sum(0).square().sum() / r1.clamp(min=TINY) - 1, 0.0)
