"""Gradients of clients over all of their samples, at a model that the server knows.

Shape legend: M clients of the cohort, D parameters, C running statistics.
"""

from __future__ import annotations

from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.client import LocalData, LocalSolver
from fedcomp.client.full_gradient import full_gradient
from fedcomp.core.cohort import Cohort

AT_ONCE = 64
"""Samples of a client at once, at least; only rounding depends on it."""


def local_gradients(client: LocalSolver, theta: Tensor, stats: Tensor, cohort: Cohort, ctx: Context) -> Tensor:
    """[M, D] grad f_i(theta) of each client at theta [D], with the local solver's weight decay as a part of f_i."""
    at_once = max(client.most_samples, AT_ONCE)

    def work(data: LocalData, theta: Tensor, stats: Tensor) -> Tensor:
        grad = full_gradient(data.samples(at_once), data.num_samples, theta, stats, 0, data.gradient).grad
        return grad.add_(theta, alpha=client.weight_decay)

    found: Tensor = ctx.clients.map_clients(work, cohort, theta.expand(cohort.size, -1), stats.expand(cohort.size, -1))
    return found
