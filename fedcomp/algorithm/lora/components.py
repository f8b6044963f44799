"""Components of adapters: which of them a client has, by its ranks, and messages of these alone.

Component j of an adapted matrix is row j of A and column j of B. Rows of parameters have those of the model's rank;
what a client does not have is 0 in both factors where it trains, and so are the gradients: they stay 0, whatever the
local solver.

Shape legend: M clients of the cohort, N in all, D parameters, C running statistics, K adapted matrices, n entries of a
message.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.updates.local_training import train_cohort
from fedcomp.algorithm.updates.metrics import lengths
from fedcomp.client import GradFn, LocalData, LocalResult, LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.estimators.estimator import WeightedSum
from fedcomp.compressor.feedback import NoFeedback
from fedcomp.core.cohort import Cohort, Listed
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float

DENSE = Compressor(Dense())
ADAPTER = "adapter"
"""The field of a message that has a client's components, and what is trained beside the adapters."""


@dataclass(frozen=True)
class Components:
    """The components that clients have, out of rows of parameters. `layout`: of the adapters."""

    layout: LoraLayout

    @classmethod
    def of(cls, tensors: Sequence[ParameterTensor]) -> "Components":
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

    def send_up(
        self, rows: Tensor, known: Tensor, ranks: Tensor, uplink: Compressor, cohort: Cohort, ctx: Context
    ) -> Tensor:
        """The cohort sends its components of rows [M, D]; as received, 0 in all other entries.

        Args:
            known: [M, D] what the server knows of the rows, 0 where a client has nothing: lossy codecs carry the
                difference, in messages of as many entries as the client's ranks [M, K] have.
        """
        if isinstance(uplink.codec, Dense):
            return self._rows(ctx.link.up(Payload({ADAPTER: self._field(rows, ranks)})), ranks)
        received = known.clone()
        for places in _alike(ranks):
            columns, own, layers = self._coded(uplink, ranks[places[0]], ctx.clients.tensors)
            numbers = tuple(cohort.clients[place] for place in places.tolist())
            some = replace(cohort, ids=cohort.ids[places], weight=cohort.weight[places], clients=numbers)
            common, change = replace(ctx.common(ADAPTER, some), layers=layers), (rows - known)[places][:, columns]
            nothing = own.init(some.size, change[0])
            payload, _ = own.encode(change, nothing, some, common, ctx.sender_key(ADAPTER))
            decoded = own.decode(ctx.link.up(payload, Listed(numbers)), common)
            own.check_finite(ctx.link, change, payload, decoded, common)
            received[places[:, None], columns] += decoded
        return received

    def check_codec(self, uplink: Compressor, ranks: Tensor, tensors: Sequence[ParameterTensor]) -> None:
        """Raise ValueError if messages of clients of these ranks [N, K] cannot be coded, and decoded one by one."""
        if uplink.predicts or (type(uplink.feedback), type(uplink.estimator)) != (NoFeedback, WeightedSum):
            raise ValueError(
                "compressor: adapters are factored or cut anew in every round, and clients' factors are decoded one by "
                "one: take compressor.feedback=none, predictor=none and estimator=weighted_sum"
            )
        for places in () if ranks.is_meta else _alike(ranks):  # else the state's size alone is asked for
            columns, own, _ = self._coded(uplink, ranks[places[0]], tensors)
            own.init(1, torch.zeros(len(columns), device=ranks.device))

    def _coded(
        self, uplink: Compressor, ranks: Tensor, tensors: Sequence[ParameterTensor]
    ) -> tuple[Tensor, Compressor, tuple[int, ...]]:
        """(columns [n] that a client of ranks [K] has, the compressor for them, how many are of each tensor)."""
        mask = self.mask(ranks[None])[0]
        sizes = [int(part.sum()) for part in mask.split([tensor.size for tensor in tensors])]
        have = tuple(replace(tensor, size=size) for tensor, size in zip(tensors, sizes, strict=True) if size)
        own = uplink if uplink.part is None else uplink.for_tensors(have)
        return mask.nonzero()[:, 0], own, tuple(tensor.size for tensor in have)

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
    hook: Callable[[LocalData, Tensor, Key], GradFn] | None = None,
) -> tuple[Tensor, LocalResult, Tensor, dict[str, Tensor]]:
    """Each client of the cohort is sent its components of theta [D], and trains them.

    Args:
        ranks: [M, K] of the cohort. alike: whether all clients have the model's.
        hook: makes a gradient hook of a chunk's data and ranks, and of the round's key.
    Returns:
        what they were sent [M, D], where they ended, their mean statistics [C], and the training's metrics.
    """

    def train(data: LocalData, theta: Tensor, stats: Tensor, ranks: Tensor) -> LocalResult:
        return client.run(data, theta, stats, ctx.progress, hook(data, ranks, ctx.key) if hook else None)

    start, stats = components.send_down(theta, ranks, cohort, ctx, alike), ctx.send_stats(stats, cohort)
    local, stats = train_cohort(train, start, stats, cohort, ctx, rows=(ranks,))
    return start, local, stats, {"train/loss": local.loss, "update/norm": lengths(local.value - start)}


def _alike(ranks: Tensor) -> list[Tensor]:
    """Places of the rows of ranks [M, K] that are equal, a tensor for each kind."""
    kinds: dict[tuple[int, ...], list[int]] = {}
    for place, own in enumerate(ranks.tolist()):
        kinds.setdefault(tuple(own), []).append(place)
    return [torch.tensor(places, device=ranks.device) for _, places in sorted(kinds.items())]


def _first(count: Tensor, data: Tensor) -> Tensor:
    """[M, n] whether an entry of data [M, n] is one of its row's first `count`."""
    return torch.arange(data.shape[1], device=data.device) < count[:, None]
