"""FLASC: adapters are dense at clients and server, and sparse both ways between them.

K. Kuo, A. Raje, K. Rajesh, V. Smith, "Federated LoRA with sparse communication", arXiv:2406.05233; authors' program
`imkevinkuo/flasc`. In a round

    down      theta restricted to its k_d largest entries, the same for the cohort; the others are 0
    client    trains all entries from there; sends the k_u largest of its change
    server    theta <- theta + AdamW(mean of the changes, where what was not sent counts as 0)

The way up is `compressor` (`topk`), the way down `MaskedModel`; the places of entries, which the paper
and its program leave out of their counts, are sent and counted both ways. With `density=1` and a dense compressor it is
FedAvg with the same server optimiser, bit for bit.

At first B is 0, so that masks of the model's entries bring A alone until entries of B outgrow A's. `mask=update` masks
theta - theta_0 instead, for the same bits, and for none in the first round that has clients; theta_0 follows from the
run's seed. The mask is that of the flat vector, head included. The masked model is tested, as in the program, whose
mask then is that of the last download and here of the next; the whole model's metrics are `whole/...`.

Shape legend: D parameters, C running statistics.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Models, Setup, Weights
from fedcomp.algorithm.downlinks.downlink import Downlink
from fedcomp.algorithm.updates import begun
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.algorithm.updates.metrics import clients_memory
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor, Memory
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.sparsifiers.topk import TopK, stable_topk
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Within
from fedcomp.random.keys import Key
from fedcomp.server import ServerOptimizer
from fedcomp.server.contract import Slots


@dataclass(frozen=True)
class MaskedModel(Downlink[Tensor, Tensor]):
    """The k = density D largest entries; its memory [D] is the first model, which both ends know.

    Attributes:
        density: 1: the model as it is, without places.
        mask: model: entries of the model, the others are 0. update: entries of what was learnt since the first model;
            the others are as they were there.
        begins: whether no round had clients yet, so that nothing was learnt.
    """

    sends_model = True

    density: float
    mask: str
    begins: bool = False

    @property
    def compressor(self) -> Compressor:
        """What the entries are sent through."""
        return Compressor(Dense() if self.density == 1 else TopK(self.density))

    def model(self, theta: Tensor, memory: Tensor, cohort: Cohort, ctx: Context) -> tuple[Tensor, Tensor]:
        compressor, learnt = self.compressor, self.density < 1 and self.mask == "update"
        sent = theta - memory if learnt else theta
        if learnt and self.begins:
            return memory, memory
        received, _ = ctx.send_down("model", compressor, sent, compressor.init(1, sent), cohort)
        return memory + received if learnt else received, memory

    def masked(self, theta: Tensor, first: Tensor) -> Tensor:
        """What a cohort would train from: theta [D] with `mask`, where `first` [D] is the first model."""
        if self.density == 1:
            return theta
        base = first if self.mask == "update" else theta.new_zeros(())
        learnt = theta - base
        kept = stable_topk(learnt.abs()[None], TopK(self.density).num_sent(len(theta)))[0]
        return theta.new_zeros(theta.shape).index_copy(0, kept, learnt[kept]) + base


@dataclass(frozen=True)
class FLASCState:
    """What lives from round to round.

    Attributes:
        theta: [D] the server's model. first: [D] theta_0. stats: [C] running statistics.
        uplink: memory of the compressor. optimizer: memories of the server optimiser.
        started: [1] int64, 1 once a round had clients; on the host, where it is asked.
    """

    theta: Tensor
    first: Tensor
    stats: Tensor
    uplink: Memory
    optimizer: Slots
    started: Tensor


@dataclass(frozen=True)
class FLASC(Algorithm):
    """FedAvg with a masked model down, see `MaskedModel`; the uplink carries the changes."""

    client: LocalSolver
    server: ServerOptimizer
    uplink: Compressor
    density: Annotated[float, Within("(0, 1]", "the share of the model that is sent down")] = 0.25
    mask: Literal["model", "update"] = "model"
    weights: Weights = "uniform"

    @property
    def down(self) -> MaskedModel:
        """The downlink."""
        return MaskedModel(self.density, self.mask)

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FLASCState:
        uplink = self.uplink.init(setup.num_clients, theta)
        return FLASCState(theta, theta, stats, uplink, self.server.init(theta), begun.flag())

    def round(self, state: FLASCState, cohort: Cohort, ctx: Context) -> tuple[FLASCState, Metrics]:
        down = replace(self.down, begins=not begun.yes(state.started))
        start, stats, first = down.send_model(state.theta, state.stats, state.first, cohort, ctx)
        local, stats = train_locally(self.client, start, stats, cohort, ctx)
        mean, uplink = ctx.send_up("update", self.uplink, local.value, state.uplink, cohort)
        step, optimizer = self.server.step(mean, state.optimizer, state.theta)
        metrics = {**training_metrics(local), **clients_memory(uplink, cohort)}
        started = torch.ones_like(state.started)
        return FLASCState(state.theta + step, first, stats, uplink, optimizer, started), metrics

    def evaluation_models(self, state: FLASCState, key: Key) -> dict[str, Models]:
        """The masked model; as `whole` the server's own, where that is another."""
        models = {"test": self.down.masked(state.theta, state.first)}
        if self.density < 1:
            models["whole"] = state.theta
        return {name: Models(theta[None], state.stats[None]) for name, theta in models.items()}
