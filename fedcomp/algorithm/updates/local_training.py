"""Local training as most methods send it: the change theta_i - theta, the negative of the papers' pseudo-gradient.

Shape legend: M clients of the cohort, D parameters, C running statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics
from fedcomp.client import LocalData, LocalSolver
from fedcomp.client.contract import LocalResult
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import put_rows, take_rows


def train_locally(
    client: LocalSolver, theta: Tensor, stats: Tensor, cohort: Cohort, ctx: Context, memory: tuple[Tensor, ...] = ()
) -> LocalResult:
    """Every client of the cohort trains with `client`; arguments as of `train_cohort`.

    Returns:
        the changes theta_i - theta [M, D] as `theta`, with statistics, losses, and the persistent state of all N.
    """

    def train(data: LocalData, theta: Tensor, stats: Tensor, *memory: Tensor) -> LocalResult:
        result = client.run(data, theta, stats, ctx.progress, memory=memory)
        return replace(result, theta=result.theta.sub_(theta))

    return train_cohort(train, theta, stats, cohort, ctx, memory)


def train_cohort(
    work: Callable[..., LocalResult],
    theta: Tensor,
    stats: Tensor,
    cohort: Cohort,
    ctx: Context,
    memory: tuple[Tensor, ...] = (),
) -> LocalResult:
    """`work(data, theta, stats, *memory)` for the cohort, in chunks of clients.

    Args:
        theta: where they start, one for all [D] or one a client [M, D]. stats: likewise [C] or [M, C].
        memory: the solver's persistent state, one row for each of the N clients (`LocalSolver.init_persistent`); ():
            fresh state. What the result has in its place is that of all N again.
    """
    rows = *(x.expand(cohort.size, -1) for x in (theta, stats)), *(take_rows(slot, cohort) for slot in memory)
    local: LocalResult = ctx.clients.map_clients(work, cohort, *rows)
    kept = tuple(put_rows(slot, cohort, new) for slot, new in zip(memory, local.memory, strict=True))
    return replace(local, memory=kept)


def training_metrics(local: LocalResult) -> Metrics:
    """`train/loss` [M], and `update/norm` [M], the length of each change, which must be finite."""
    return {"train/loss": local.loss, "update/norm": torch.linalg.vector_norm(local.theta, dim=1)}
