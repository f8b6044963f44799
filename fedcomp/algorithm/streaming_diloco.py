"""Streaming DiLoCo: one fragment of the model is sent at a time, and arrives while clients go on training.

A. Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv:2501.18512. Workers m = 1..N keep models
theta_m and the moments of their inner optimizer. Fragment p = 1..P of the parameters, with offset t_p = (p - 1) H / P,
is synchronised after every step t with (t - t_p) mod H = 0, for the first time at t_p + H, and its step arrives tau
steps later:

    at t          Delta_p = sum_m w_m (theta_m,p - theta_p);   theta_p <- theta_p + OuterOpt_p(Delta_p)
    at t + tau    theta_m,p <- alpha theta_m,p + (1 - alpha) theta_p

A round here is H / P local steps (`client.steps`) and the synchronisation after them, so that H = fragments *
client.steps, a fragment is sent once in H steps, and rounds before the P-th send nothing. The bits of H steps are
DiLoCo's; the most at once falls by P. With P = 1, tau = 0 and alpha = 0 it is DiLoCo bit for bit.

Where the paper leaves a choice: its text has (t + t_p), its algorithm (t - t_p), which is taken, without the step at
t_p itself, where there would be nothing to refer to. The reference of Delta_p is the last global fragment, not the
worker's own of H steps ago, from which the copies of the global model would drift apart for alpha or tau above 0. The
test model is the global one, which has a fragment's step from t on. Fragments are sets of whole parameter tensors; the
paper's are blocks of a transformer. What goes down is the outer step. With tau, a round's steps are in two parts with
the merge between them, on the same batches as without.

Shape legend: N workers, all take part, D parameters, C running statistics.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Literal, TypeVar

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.updates.fragments import Fragment, fragments_of
from fedcomp.algorithm.updates.local_training import train_cohort, training_metrics
from fedcomp.algorithm.updates.metrics import clients_memory, servers_memory
from fedcomp.client import Batch, Batching, LocalData, LocalResult, LocalSolver
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.core.ranges import Whole, Within
from fedcomp.core.validate import is_whole
from fedcomp.model.contract import Gradient
from fedcomp.server import ServerOptimizer, Slots

Part = TypeVar("Part")


@dataclass(frozen=True)
class StreamingState:
    """What lives from round to round.

    Attributes:
        theta: [D] the global model, which all workers know. stats: [C] its running statistics.
        workers: [N, D] theta_m. local: moments of the inner optimizer, one row a worker.
        uplink, downlink: the compressors' memories, of each fragment. optimizer: the outer optimizer's, of each.
    """

    theta: Tensor
    stats: Tensor
    workers: Tensor
    local: tuple[Tensor, ...]
    uplink: tuple[Memory, ...]
    downlink: tuple[Memory, ...]
    optimizer: tuple[Slots, ...]


@dataclass(frozen=True)
class StreamingDiLoCo(Algorithm):
    """Local training with fragments that are synchronised in turn.

    Attributes:
        client: the inner optimizer; its `steps` are H / P. server: the outer one, of each fragment by itself.
        uplink: carries Delta_p. downlink: carries the outer step. fragments: P. pattern: see `fragments_of`.
    """

    client: LocalSolver
    server: ServerOptimizer
    uplink: Compressor
    downlink: Compressor
    fragments: Annotated[int, Whole()] = 2
    pattern: Literal["balanced", "strided", "sequential"] = "balanced"
    tau: int = 1
    alpha: Annotated[float, Within("[0, 1]", "a worker's share in its own fragment")] = 0.0
    weights: str = "samples"

    full_participation = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.client.check_persistent()
        if self.client.batching.steps is None:
            raise ValueError(
                "algorithm=streaming_diloco needs client.steps, the local steps from one fragment to the next, "
                "H / algorithm.fragments"
            )
        if not is_whole(self.tau) or not 0 <= self.tau < self.period:
            raise ValueError(
                f"algorithm.tau={self.tau} must be a number of local steps, 0 or more, below H = algorithm.fragments * "
                f"client.steps = {self.period}: a fragment arrives before it is sent again"
            )

    @property
    def steps(self) -> int:
        """H / P."""
        assert self.client.batching.steps is not None
        return self.client.batching.steps

    @property
    def period(self) -> int:
        """H."""
        return self.fragments * self.steps

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> StreamingState:
        """The first model everywhere, and empty memories. Raises ValueError: fewer tensors than fragments."""
        parts = self._split(setup.tensors)
        rows = [(one, one.part.take(theta)) for one in parts]
        return StreamingState(
            theta,
            stats,
            theta.repeat(setup.num_clients, 1),
            self.client.init_persistent(setup.num_clients, theta),
            tuple(one.own(self.uplink).init(setup.num_clients, row) for one, row in rows),
            tuple(one.own(self.downlink).init(1, row) for one, row in rows),
            tuple(self.server.init(row) for _, row in rows),
        )

    def round(self, state: StreamingState, cohort: Cohort, ctx: Context) -> tuple[StreamingState, Metrics]:
        """H / P local steps, and one fragment's synchronisation.

        Metrics: the training's; `drift/client`, the mean of ||theta_m - mean theta||^2; the fragment's memories.
        """
        parts = self._split(ctx.clients.tensors)
        arriving, at = self._arrival(ctx.round)
        inside = None if arriving is None or at == self.steps else parts[arriving]
        local, stats = self._train(state, inside, at, cohort, ctx)
        workers, state = local.value, replace(state, stats=stats, local=local.memory)
        metrics = dict(training_metrics(replace(local, value=workers - state.workers)))
        metrics["drift/client"] = (workers - workers.mean(0)).square().sum(1).mean()
        if ctx.round + 1 >= self.fragments:
            number = (ctx.round + 1) % self.fragments
            state, found = self._synchronise(state, workers, number, parts[number], cohort, ctx)
            metrics |= found
        stats = ctx.send_stats(state.stats, ctx.everyone)
        if arriving is not None and inside is None:
            workers = self._merge(workers, state.theta, parts[arriving])
        return replace(state, workers=workers, stats=stats), metrics

    def _split(self, tensors: Sequence[ParameterTensor]) -> tuple[Fragment, ...]:
        return fragments_of(tensors, self.fragments, self.pattern)

    def _arrival(self, round_index: int) -> tuple[int | None, int]:
        """(the fragment that arrives in this round, or None; after how many of its local steps, 1 to H / P)."""
        whole, later = divmod(self.tau, self.steps)
        sent = round_index - whole + (later == 0)  # rounds that were done when it was sent
        return (sent % self.fragments if sent >= self.fragments else None), later or self.steps

    def _train(
        self, state: StreamingState, inside: Fragment | None, at: int, cohort: Cohort, ctx: Context
    ) -> tuple[LocalResult, Tensor]:
        """The workers' models [N, D] after their steps, `inside` arriving after `at`; the mean statistics [C]."""

        def train(data: LocalData, theta: Tensor, stats: Tensor, *memory: Tensor) -> LocalResult:
            if inside is None:
                return self.client.run(data, theta, stats, ctx.progress, memory=memory)
            before, after = StepRange(data, 0, at), StepRange(data, at, self.steps)
            one = self.client.run(before, theta, stats, ctx.progress, memory=memory)
            merged = self._merge(one.value, state.theta, inside)
            two = self.client.run(after, merged, one.stats, ctx.progress, memory=one.memory)
            return replace(two, loss=torch.lerp(one.loss, two.loss, 1 - at / self.steps))

        return train_cohort(train, state.workers, state.stats, cohort, ctx, state.local)

    def _synchronise(
        self, state: StreamingState, workers: Tensor, number: int, part: Fragment, cohort: Cohort, ctx: Context
    ) -> tuple[StreamingState, Metrics]:
        """The global model after the outer step of the fragment with this number."""
        old = part.part.take(state.theta)
        change = part.part.take(workers) - old
        mean, uplink = part.send_up("update", self.uplink, change, state.uplink[number], cohort, ctx)
        step, slots = self.server.step(mean, state.optimizer[number], old)
        sent, downlink = part.send_down("step", self.downlink, step, state.downlink[number], ctx)
        new = replace(
            state,
            theta=part.part.put(state.theta, old + sent),
            uplink=_put(state.uplink, number, uplink),
            downlink=_put(state.downlink, number, downlink),
            optimizer=_put(state.optimizer, number, slots),
        )
        return new, {**clients_memory(uplink, cohort), **servers_memory(downlink, step)}

    def _merge(self, workers: Tensor, theta: Tensor, part: Fragment) -> Tensor:
        """Workers' models [N, D] with the global fragment mixed in."""
        own, common = part.part.take(workers), part.part.take(theta)
        return part.part.put(workers, self.alpha * own + (1 - self.alpha) * common)


@dataclass(frozen=True)
class StepRange:
    """Implements `LocalData`: the steps from `first` up to `end` of each client's `data`."""

    data: LocalData
    first: int
    end: int
    loop_runner: None = None

    @property
    def ids(self) -> Tensor:
        return self.data.ids

    @property
    def num_samples(self) -> Tensor:
        return self.data.num_samples

    @property
    def tensors(self) -> tuple[ParameterTensor, ...]:
        return self.data.tensors

    def batches(self, batching: Batching) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        return islice(self.data.batches(batching), self.first, self.end)

    def num_steps(self, batching: Batching) -> Tensor:
        return self.data.num_steps(batching).clamp(self.first, self.end) - self.first

    def samples(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        return self.data.samples(batch_size)

    def take(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.data.take(positions)

    def gradient(self, theta: Tensor, batch: Batch, step: int | Tensor) -> Gradient:
        return self.data.gradient(theta, batch, step + self.first)

    def outputs(self, theta: Tensor, batch: Batch, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.data.outputs(theta, batch, None if step is None else step + self.first)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return self.data.loss(outputs, batch)

    def losses(self, theta: Tensor, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        return self.data.losses(theta, batch, step + self.first)


def _put(values: tuple[Part, ...], number: int, value: Part) -> tuple[Part, ...]:
    return (*values[:number], value, *values[number + 1 :])
