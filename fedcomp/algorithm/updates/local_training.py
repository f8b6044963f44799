"""Local training as most methods send it: the change theta_i - theta, the negative of the papers' pseudo-gradient.

Shape legend: M clients of the cohort, D parameters, C running statistics.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics
from fedcomp.client import Batch, Gradient, Hook, LocalData, LocalResult, LocalSolver, Reads
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterSubset
from fedcomp.core.pytree import put_rows, take_rows


def train_locally(
    client: LocalSolver, theta: Tensor, stats: Tensor, cohort: Cohort, ctx: Context, memory: tuple[Tensor, ...] = ()
) -> tuple[LocalResult, Tensor]:
    """Every client of the cohort trains with `client`; arguments as of `train_cohort`.

    Returns:
        the changes theta_i - theta [M, D] as `value`, with losses and the persistent state of all N; and the mean
        statistics [C], which the clients send.
    """

    def train(data: LocalData, theta: Tensor, stats: Tensor, *memory: Tensor) -> LocalResult:
        result = client.run(data, theta, stats, ctx.progress, memory=memory)
        return replace(result, value=result.value.sub_(theta))

    return train_cohort(train, theta, stats, cohort, ctx, memory)


def train_part(
    client: LocalSolver, part: ParameterSubset, theta: Tensor, stats: Tensor, cohort: Cohort, ctx: Context
) -> tuple[LocalResult, Tensor]:
    """As `train_locally` from theta [D], but all columns outside of `part` stay as they are: changes [M, d]."""

    def train(data: LocalData, rows: Tensor, stats: Tensor) -> LocalResult:
        def gradient(rows: Tensor, batch: Batch, reads: Reads) -> Gradient:
            whole = part.put(reads.shared[0].expand(rows.shape[0], -1), rows)
            plain = data.gradient(whole, batch, reads.step)
            return Gradient(part.take(plain.grad), plain.loss, plain.stats)

        hook = Hook(gradient, ("part", part), (), (theta,), ctx.key)
        result = client.run(data, rows, stats, ctx.progress, hook)
        return replace(result, value=result.value.sub_(rows))

    return train_cohort(train, part.take(theta), stats, cohort, ctx)


def train_cohort(
    work: Callable[..., LocalResult],
    theta: Tensor,
    stats: Tensor,
    cohort: Cohort,
    ctx: Context,
    memory: tuple[Tensor, ...] = (),
    rows: tuple[Tensor, ...] = (),
) -> tuple[LocalResult, Tensor]:
    """`work(data, theta, stats, *rows, *memory)` for the cohort, in chunks of clients, who then send their statistics.

    Args:
        theta: where they start, one for all [D] or one a client [M, D]. stats: likewise [C] or [M, C].
        memory: the solver's persistent state, one row for each of the N clients (`LocalSolver.init_persistent`); ():
            fresh state. What the result has in its place is that of all N again.
        rows: more that they get, one row a client of the cohort [M, ...].
    Returns:
        what `work` did; and the mean statistics [C] as the server receives them.
    """
    start = *(x.expand(cohort.size, -1) for x in (theta, stats)), *rows, *(take_rows(slot, cohort) for slot in memory)
    local: LocalResult = ctx.clients.map_clients(work, cohort, *start)
    kept = tuple(put_rows(slot, cohort, new) for slot, new in zip(memory, local.memory, strict=True))
    return replace(local, memory=kept), ctx.gather_stats(local.stats, cohort)


def training_metrics(local: LocalResult) -> Metrics:
    """`train/loss` [M], and `update/norm` [M], the length of each change, which must be finite."""
    return {"train/loss": local.loss, "update/norm": torch.linalg.vector_norm(local.value, dim=1)}
