"""Components of adapters: which of them a client has, by its ranks, and messages of these alone.

Component j of an adapted matrix is row j of A and column j of B. Rows of parameters have those of the model's rank;
what a client does not have is 0 in both factors where it trains, and so are the gradients: they stay 0, whatever the
local solver.

Shape legend: M clients of the cohort, D parameters, C running statistics, K adapted matrices, n entries of a message.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.updates.local_training import train_cohort
from fedcomp.algorithm.updates.metrics import lengths
from fedcomp.client import LocalData, LocalResult, LocalSolver
from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float

ADAPTER = "adapter"
"""The field of a message that has a client's components, and what is trained beside the adapters."""


@dataclass(frozen=True)
class Components:
    """The components that clients have, out of rows of parameters.

    Attributes:
        layout: of the adapters.
    """

    layout: LoraLayout

    @classmethod
    def of(cls, tensors: Sequence[ParameterTensor]) -> Components:
        """ValueError: there are no adapters, or A is frozen."""
        layout = LoraLayout.of(tensors)
        layout.check_trains_a()
        return cls(layout)

    @functools.cached_property
    def places(self) -> tuple[Tensor, Tensor]:
        """(matrix [D], component [D]) of every column; what is no adapter is component -1 of matrix 0."""
        shape = (1, self.layout.dim)
        matrix, component = torch.zeros(shape, dtype=torch.int64), torch.full(shape, -1)
        pairs = zip(self.layout.factors(matrix), self.layout.factors(component), strict=True)
        for number, ((in_a, in_b), (row, column)) in enumerate(pairs):  # views, which are written to
            in_a.fill_(number)
            in_b.fill_(number)
            own = torch.arange(row.shape[1])
            row.copy_(own[:, None].expand_as(row))
            column.copy_(own.expand_as(column))
        return matrix[0], component[0]

    def mask(self, ranks: Tensor) -> Tensor:
        """[M, D] whether a client of these ranks [M, K] has the entry."""
        matrix, component = (place.to(ranks.device) for place in self.places)
        return component < ranks[:, matrix]

    def send_down(self, theta: Tensor, ranks: Tensor, cohort: Cohort, ctx: Context, alike: bool) -> Tensor:
        """The server sends each client of the cohort its part of theta [D], by its ranks [M, K]; as received [M, D].

        Args:
            alike: all have the model's ranks, so that all are sent the same.
        """
        if alike:
            return ctx.send_dense("model", theta, cohort).expand(cohort.size, -1)
        rows = theta.expand(cohort.size, -1)
        return self._rows(ctx.link.unicast(Payload({ADAPTER: self._field(rows, ranks)})), ranks)

    def send_up(self, rows: Tensor, ranks: Tensor, ctx: Context) -> Tensor:
        """The cohort sends its components of rows [M, D]; as received, 0 in all other entries."""
        return self._rows(ctx.link.up(Payload({ADAPTER: self._field(rows, ranks)})), ranks)

    def _field(self, rows: Tensor, ranks: Tensor) -> Field:
        """The entries that clients of these ranks have; the receiver knows how many."""
        mask = self.mask(ranks)
        count = mask.sum(1)
        data = rows.new_zeros(len(rows), int(count.max()))
        data[_first(count, data)] = rows[mask]
        return Field(data, Float(), count, count_known=True)

    def _rows(self, payload: Payload, ranks: Tensor) -> Tensor:
        mask = self.mask(ranks)
        count = mask.sum(1)
        (data,) = payload.expect(**{ADAPTER: int(count.max())})
        rows = data.new_zeros(mask.shape)
        rows[mask] = data[_first(count, data)]
        return rows


def fresh_factors(components: Components, theta: Tensor, ranks: Tensor, key: Key, ids: Tensor) -> Tensor:
    """[M, D] theta [D] with new adapters of these ranks [M, K]: A uniform on +-1/sqrt(i), B = 0.

    Args:
        key: of the round; each client [M] has its own draws, each matrix too.
    """
    rows, factors = theta.expand(len(ids), -1), []
    for number, (a, b) in enumerate(components.layout.factors(rows)):
        rank, inputs = a.shape[1:]
        drawn = key.fold_in(number).uniform(ids, rank * inputs).view(-1, rank, inputs)
        factors.append(((drawn * 2 - 1) / inputs**0.5, torch.zeros_like(b)))
    return components.layout.put(rows, factors) * components.mask(ranks)


def train_own(
    client: LocalSolver,
    components: Components,
    theta: Tensor,
    stats: Tensor,
    ranks: Tensor,
    alike: bool,
    cohort: Cohort,
    ctx: Context,
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Each client of the cohort is sent its components of theta [D], trains them, and sends them.

    Args:
        ranks: [M, K] of the cohort. alike: whether all clients have the model's.
    Returns:
        what the server received [M, D], the clients' mean statistics [C], and the training's metrics.
    """

    def train(data: LocalData, theta: Tensor, stats: Tensor) -> LocalResult:
        return client.run(data, theta, stats, ctx.progress)

    start, stats = components.send_down(theta, ranks, cohort, ctx, alike), ctx.send_stats(stats, cohort)
    local, stats = train_cohort(train, start, stats, cohort, ctx)
    metrics = {"train/loss": local.loss, "update/norm": lengths(local.value - start)}
    return components.send_up(local.value, ranks, ctx), stats, metrics


def _first(count: Tensor, data: Tensor) -> Tensor:
    """[M, n] whether an entry of data [M, n] is one of its row's first `count`."""
    return torch.arange(data.shape[1], device=data.device) < count[:, None]
