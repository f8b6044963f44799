"""The local steps of LoCoDL, TAMUNA, DASHA and MARINA: plain gradient steps, over all samples or over mini-batches.

With gradients of mini-batches (client=sgd) each method has a noise floor in proportion to the step; the metric `exact`
is then 0, else 1. Weight decay w is a part of every client's objective, f_i + (w / 2) ||theta||^2.

Shape legend: M clients of the cohort, D parameters, C running statistics.
"""

import logging
import math
from dataclasses import replace
from functools import lru_cache
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics
from fedcomp.client import Batch, Batching, LocalData, LocalResult, LocalSolver
from fedcomp.client.full_gradient import full_gradient
from fedcomp.client.gd import GD
from fedcomp.client.sgd import Sgd
from fedcomp.client.shifted_gradient import shifted_gradient
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Within
from fedcomp.random.keys import Key

log = logging.getLogger("fedcomp")

Constant = Annotated[float | None, Within("(0, inf)", "null where it is unknown")]


def check_client(name: str, client: LocalSolver) -> None:
    """Raise ValueError unless the local solver is client=gd, or client=sgd as plain as that."""
    if not isinstance(client, (GD, Sgd)):
        given = f"client={type(client).__name__.lower()}"
    elif isinstance(client, Sgd) and client.momentum:
        given = f"client.momentum={client.momentum}"
    elif client.clip_norm is not None:
        given = f"client.clip_norm={client.clip_norm}"
    elif client.proximal:
        given = f"client.proximal={client.proximal}"
    elif client.steps not in (None, 1):
        given = f"client.steps={client.steps}"
    elif isinstance(client, Sgd) and client.epochs not in (None, 1):
        given = f"client.epochs={client.epochs}"
    else:
        return
    raise ValueError(
        f"{name} sets its own number of plain gradient steps, but {given} was given: take client=gd (exact gradients), "
        "or client=sgd without momentum, clipping, client.steps and client.epochs"
    )


def check_constant_step(name: str, client: LocalSolver) -> None:
    """Raise ValueError if the local step changes over rounds."""
    if client.schedule != "constant":
        raise ValueError(
            f"client.schedule={client.schedule} changes the step, on which the dual variables of {name} depend: take "
            "client.schedule=constant"
        )


def check_no_stats(name: str, stats: Tensor) -> None:
    """Raise ValueError if the model has running statistics [C], with which gradients are not of one function."""
    if stats.shape[0]:
        raise ValueError(f"{name} needs a model without running statistics (BatchNorm): take another model")


def check_constants(smoothness: float | None, convexity: float | None, lr: float) -> None:
    """Raise ValueError unless mu <= L where both are known, and the step lr is below 2 / L."""
    if smoothness is not None and convexity is not None and convexity > smoothness:
        raise ValueError(
            f"algorithm.convexity={convexity} is above algorithm.smoothness={smoothness}: no function is such"
        )
    if smoothness is not None and lr >= 2 / smoothness:
        raise ValueError(
            f"client.lr={lr} must be below 2 / algorithm.smoothness = {2 / smoothness:.4g}: steps diverge there"
        )


@lru_cache(maxsize=64)
def warn_once(message: str) -> None:
    """Log a warning the first time."""
    log.warning(message)


def geometric(probability: float, key: Key) -> int:
    """A draw from {1, 2, ...} with P(L = l) = p (1 - p)^(l - 1), on the host; both ends draw the same."""
    if probability == 1:
        return 1
    uniform = float(key.uniform(torch.zeros(1, dtype=torch.int64), 1))
    return 1 + int(math.log1p(-uniform) / math.log1p(-probability))


def train_shifted(
    client: LocalSolver,
    num_steps: int,
    theta: Tensor,
    shift: Tensor,
    weight: float,
    stats: Tensor,
    cohort: Cohort,
    ctx: Context,
) -> LocalResult:
    """`num_steps` steps along grad f_i(theta) + weight theta + shift_i, from rows theta [M, D] with shift [M, D]."""
    assert isinstance(client, (GD, Sgd))
    solver = replace(client, steps=num_steps)

    def train(data: LocalData, theta: Tensor, shift: Tensor, stats: Tensor) -> LocalResult:
        return solver.run(data, theta, stats, ctx.progress, shifted_gradient(data, shift, weight))

    return ctx.clients.map_clients(train, cohort, theta, shift, stats.expand(cohort.size, -1))


def gradients(client: LocalSolver, theta: Tensor, stats: Tensor, cohort: Cohort, ctx: Context) -> tuple[Tensor, Tensor]:
    """(grad f_i(theta) [M, D], f_i(theta) [M]) at theta [D], over all samples or, with client=sgd, over one batch."""
    assert isinstance(client, (GD, Sgd))
    decay, size = client.weight_decay, client.batch_size

    def work(data: LocalData, theta: Tensor, stats: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(client, GD):
            found = full_gradient(data.samples(size), data.num_samples, theta, stats, 0, data.gradient)
        else:
            (x, y, weight), *_ = data.batches(Batching(size, steps=1, replacement=client.replacement))
            found = data.gradient(theta, Batch(x, y, weight, stats), 0)
        return found.grad.add(theta, alpha=decay), found.loss

    rows = theta.expand(cohort.size, -1), stats.expand(cohort.size, -1)
    return ctx.clients.map_clients(work, cohort, *rows)


def exactness(client: LocalSolver, like: Tensor) -> Metrics:
    """`exact`: 1 if gradients are over all samples, else 0."""
    return {"exact": like.new_full((), float(isinstance(client, GD)))}
