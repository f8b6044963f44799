"""FedAvg with any compressor in either direction; with one local step it is the uncompressed PSGD of the papers.

H. B. McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017,
algorithm 1. With compressors: A. Reisizadeh et al., "FedPAQ", AISTATS 2020 (uplink); H. Tang et al., "DoubleSqueeze",
ICML 2019 (both directions with error feedback).

Three ways down (`downlinks/downlink.py`):
    model   the round begins with the model, sent to those who take part (`near_lossless` codecs, such as dense)
    step    the round ends with the server's step, sent to all N clients, idle ones too, so that everybody keeps the
            same model. The first model follows from the run's seed, which both ends know, and costs nothing.
    mean_update  as step, but what is sent is the mean update, and everybody takes the server's step with it, so that
            a downlink's memory is in the clients' units, whatever the server's learning rate

Compressors may predict (`updates/prediction.py`): CAFe, EF21, EF21-P.

Shape legend: N clients in all, D parameters, C running statistics.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Models, Setup
from fedcomp.algorithm.downlinks.downlink import CompressedDownlink
from fedcomp.algorithm.updates.adapter_bias import adapter_bias
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.algorithm.updates.metrics import clients_memory, servers_memory, vectors
from fedcomp.algorithm.updates.prediction import check_predictors, first_flag, send_prediction
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.server import ServerOptimizer, Slots
from fedcomp.server.sgd import Sgd


@dataclass(frozen=True)
class FedAvgState:
    """What lives from round to round.

    Attributes:
        theta: [D] the server's model. stats: [C] its running statistics.
        uplink, downlink: memories of the compressors, one row a client and one for the server.
        optimizer: memories of the server optimizer.
        local: each client's persistent optimizer state, [N, D] and [N, 1] (client/minibatch.py); () for none.
        started: see `first_flag`.
    """

    theta: Tensor
    stats: Tensor
    uplink: Memory
    downlink: Memory
    optimizer: Slots
    local: tuple[Tensor, ...] = ()
    started: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Local training, weighted mean of the updates, server step.

    Attributes:
        client: trains locally. server: steps along the mean update.
        uplink: carries theta_i - theta to the server. downlink: carries the model or the server's step back.
        weights: "samples" (p_i proportional to the client's data), "tokens" (to its targets) or "uniform".
        sends: "model", "step", "mean_update", or "auto": model where the downlink's codec can carry it, else step.
        persist_optimizer: keep each client's moments from round to round, as DiLoCo does: 2 D floats a client (Adam).
    """

    client: LocalSolver
    server: ServerOptimizer
    uplink: Compressor
    downlink: Compressor
    weights: str = "samples"
    sends: str = "auto"
    persist_optimizer: bool = False

    predicts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.persist_optimizer:
            self.client.check_persistent()
        check_predictors(self.uplink, self.downlink, self.down.sends, steps_with_mean=self.server == Sgd())

    @property
    def normalises_weights(self) -> bool:
        """Whether the server's mean is over all clients, idle ones too."""
        return self.uplink.predictor.follows_senders

    @property
    def down(self) -> CompressedDownlink:
        """The downlink's compressor, and what it carries."""
        return CompressedDownlink.of(self.downlink, self.sends)

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedAvgState:
        uplink, downlink = self.uplink.init(setup.num_clients, theta), self.downlink.init(1, theta)
        local = self.client.init_persistent(setup.num_clients, theta) if self.persist_optimizer else ()
        started = first_flag(self.uplink, self.down.sends_model)
        return FedAvgState(theta, stats, uplink, downlink, self.server.init(theta), local, started)

    def round(self, state: FedAvgState, cohort: Cohort, ctx: Context) -> tuple[FedAvgState, Metrics]:
        """One round of algorithm 1; what is logged is in `updates/metrics.py`."""
        down = self.down
        start, stats, downlink = down.send_model(state.theta, state.stats, state.downlink, cohort, ctx)
        uplink = send_prediction(self.uplink, state.uplink, state.started, cohort, ctx)

        local, stats = train_locally(self.client, start, stats, cohort, ctx, state.local)
        metrics = {**training_metrics(local), **vectors(self.uplink, local.value, uplink, cohort)}
        metrics |= adapter_bias(start, local.value, cohort, ctx.clients.tensors)
        mean, uplink = ctx.send_up("update", self.uplink, local.value, uplink, cohort)

        received, downlink = down.send_mean(mean, downlink, cohort, ctx)
        step, optimizer = self.server.step(received, state.optimizer, state.theta)
        arrived, stats, downlink = down.send_step(step, stats, downlink, cohort, ctx)

        steps_down = down.sends == "step"
        uplink = self.uplink.observe(uplink, arrived if steps_down else received)
        metrics |= {**clients_memory(uplink, cohort), **servers_memory(downlink, step if steps_down else mean)}
        started = tuple(map(torch.ones_like, state.started))
        return FedAvgState(state.theta + arrived, stats, uplink, downlink, optimizer, local.memory, started), metrics

    def evaluation_models(self, state: FedAvgState, key: Key) -> dict[str, Models]:
        """The server's model; with EF21-P also `clients`, the model that they have."""
        models = {"test": state.theta[None], **self.down.held(state.theta, state.downlink)}
        return {name: Models(theta, state.stats[None]) for name, theta in models.items()}
