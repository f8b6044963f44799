"""Local training as most methods send it: the change theta_i - theta, the negative of the papers' pseudo-gradient.

Shape legend: M clients of the cohort, D parameters, C running statistics.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics
from fedcomp.client import LocalData, LocalSolver
from fedcomp.client.contract import LocalResult
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.core.cohort import Cohort


def train_locally(
    client: LocalSolver, theta: Tensor, stats: Tensor, cohort: Cohort, ctx: Context, memory: tuple[Tensor, ...] = ()
) -> LocalResult:
    """Every client of the cohort trains from its row of theta [M, D] with statistics [M, C].

    Args:
        memory: the solver's persistent state, one row a client (`MinibatchSolver.init_persistent`); (): fresh state.

    Returns:
        the changes theta_i - theta [M, D] as `theta`, with statistics, losses and the solver's state afterwards.
    """

    def train(data: LocalData, theta: Tensor, stats: Tensor, *memory: Tensor) -> LocalResult:
        if memory:
            assert isinstance(client, MinibatchSolver)
            result = client.run(data, theta, stats, ctx.progress, memory=memory)
        else:
            result = client.run(data, theta, stats, ctx.progress)
        return LocalResult(result.theta.sub_(theta), result.stats, result.loss, result.memory)

    local: LocalResult = ctx.clients.run(train, cohort, theta, stats, *memory)
    return local


def training_metrics(local: LocalResult) -> Metrics:
    """`train/loss` [M], and `update/norm` [M], the length of each change, which must be finite."""
    return {"train/loss": local.loss, "update/norm": torch.linalg.vector_norm(local.theta, dim=1)}
