"""FedAvg with any compressor in either direction; with one local step it is the uncompressed PSGD of the papers.

H. B. McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017,
algorithm 1. With compressors: A. Reisizadeh et al., "FedPAQ", AISTATS 2020 (uplink); H. Tang et al., "DoubleSqueeze",
ICML 2019 (both directions with error feedback).

Three ways down:
    model   the round begins with the model, sent to those who take part (`near_lossless` codecs, such as dense)
    step    the round ends with the server's step, sent to all N clients, idle ones too, so that everybody keeps the
            same model; the server takes the step that it sent. The first model follows from the run's seed, which
            both ends know, and costs nothing.
    mean_update  as step, but what is sent is the mean update, and everybody takes the server's step with it, so that
            a downlink's memory is in the clients' units, whatever the server's learning rate

Compressors may predict (`compressor/predictors.py`): compressor.predictor=aggregate is CAFe, ef21 is EF21, and
downlink.predictor=ef21_p is EF21-P, whose clients train from w, the model that messages to all N clients say. CAFe's
clients have to know the last mean: with sends=mean_update they do, with sends=step where the server's step is the mean,
and with sends=model the mean goes down beside the model, 32 D bits to each participant.

Shape legend: M clients of the cohort, N clients in all, D parameters, C running statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Models, Setup
from fedcomp.algorithm.downlinks.downlink import SENDS, CompressedDownlink, carries_model
from fedcomp.algorithm.updates.dense_messages import gather_stats, send, send_stats
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.algorithm.updates.metrics import clients_memory, correlation, servers_memory
from fedcomp.client import LocalSolver
from fedcomp.client.minibatch import MinibatchSolver, check_persistent
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort, server
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.core.validate import check_choice
from fedcomp.random.keys import Key
from fedcomp.server import ServerOptimizer
from fedcomp.server.contract import Slots
from fedcomp.server.sgd import Sgd


@dataclass(frozen=True)
class FedAvgState:
    """What lives from round to round.

    Attributes:
        theta: [D] the server's model. stats: [C] its running statistics.
        uplink, downlink: memories of the compressors, one row a client and one for the server.
        optimizer: memories of the server optimiser.
        local: each client's persistent optimiser state, [N, D] and [N, 1] (client/minibatch.py); () for none.
    """

    theta: Tensor
    stats: Tensor
    uplink: Memory
    downlink: Memory
    optimizer: Slots
    local: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Local training, weighted mean of the updates, server step.

    Attributes:
        client: trains locally. server: steps along the mean update.
        uplink: carries theta_i - theta to the server. downlink: carries the model or the server's step back.
        weights: "samples" (p_i proportional to the client's data) or "uniform".
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
        check_choice("algorithm.weights", self.weights, ("samples", "uniform"))
        check_choice("algorithm.sends", self.sends, ("auto", *SENDS))
        if self.persist_optimizer:
            check_persistent(self.client)
        if self.sends == "model" and not carries_model(self.downlink):
            name = type(self.downlink.codec).__name__
            raise ValueError(f"algorithm.sends=model needs a dense downlink, not {name}: use auto, step or mean_update")
        check_predictors(self.uplink, self.downlink, self.down.sends, self.server)

    @property
    def ignores_weights(self) -> bool:
        """Whether the server's mean is over all clients, idle ones too."""
        return self.uplink.predictor is not None and self.uplink.predictor.follows_senders

    @property
    def down(self) -> CompressedDownlink:
        """The downlink's compressor, and what it carries."""
        automatic = self.sends == "auto"
        return CompressedDownlink.auto(self.downlink) if automatic else CompressedDownlink(self.downlink, self.sends)

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedAvgState:
        """The first model and empty memories."""
        uplink, downlink = self.uplink.init(setup.num_clients, theta), self.downlink.init(1, theta)
        local: tuple[Tensor, ...] = ()
        if self.persist_optimizer:
            assert isinstance(self.client, MinibatchSolver)
            local = self.client.init_persistent(setup.num_clients, theta)
        return FedAvgState(theta, stats, uplink, downlink, self.server.init(theta), local)

    def round(self, state: FedAvgState, cohort: Cohort, ctx: Context) -> tuple[FedAvgState, Metrics]:
        """One round of algorithm 1.

        Metrics: the training's; `vectors/correlation`, R2/R1 of what is sent up, where the estimator uses it; lengths
        of the memories (updates/metrics.py).
        """
        down = self.down
        start, downlink = down.model(state.theta, state.downlink, cohort, ctx)
        stats = send_stats(state.stats, cohort, ctx) if down.sends_model else state.stats

        rows = start.expand(cohort.size, -1), stats.expand(cohort.size, -1)
        own = tuple(take_rows(slot, cohort) for slot in state.local)
        local = train_locally(self.client, *rows, cohort, ctx, own)
        kept = tuple(put_rows(slot, cohort, new) for slot, new in zip(state.local, local.memory, strict=True))
        metrics, uplink = training_metrics(local), state.uplink
        if self.uplink.predictor is not None:
            uplink = self._send_prediction(uplink, cohort, ctx)
            metrics = {**metrics, **self._prediction(local.theta, uplink, cohort)}
        if self.uplink.uses_correlation:
            metrics = {**metrics, "vectors/correlation": correlation(self.uplink.coded(local.theta), cohort.weight)}
        mean, uplink = ctx.send_up("update", self.uplink, local.theta, uplink, cohort)
        stats = gather_stats(local.stats, cohort, ctx)

        received, downlink = down.mean(mean, downlink, cohort, ctx)
        step, optimizer = self.server.step(received, state.optimizer)
        sent = step if down.sends == "step" else mean
        step, downlink = down.step(step, downlink, ctx)
        uplink = self.uplink.observe(uplink, step if down.sends == "step" else received)
        if not down.sends_model:
            stats = send_stats(stats, ctx.everyone, ctx)
        metrics = {**metrics, **clients_memory(uplink, cohort), **servers_memory(downlink, sent)}
        return FedAvgState(state.theta + step, stats, uplink, downlink, optimizer, kept), metrics

    def evaluation_models(self, state: FedAvgState, key: Key) -> dict[str, Models]:
        """The server's model; with EF21-P also `clients`, the model that they have."""
        models = {"test": Models(state.theta[None], state.stats[None])}
        if self.downlink.predictor is not None and self.down.sends_model:
            theirs = self.downlink.predicted(state.downlink, server(state.theta.device))
            if theirs.shape == state.theta[None].shape:  # not where some columns are sent uncompressed
                models["clients"] = Models(theirs, state.stats[None])
        return models

    def _send_prediction(self, memory: Memory, cohort: Cohort, ctx: Context) -> Memory:
        """The memory with the predicted mean that clients were sent, where they do not know it."""
        if not (self.uplink.observes and self.down.sends_model and ctx.round > 0):
            return memory
        return self.uplink.told(memory, send("prediction", self.uplink.predicted(memory, cohort)[0], cohort, ctx))

    def _prediction(self, x: Tensor, memory: Memory, cohort: Cohort) -> Metrics:
        """`predictor/ratio`, sum ||x_i - predicted||^2 / sum ||x_i||^2: above 1 the prediction does harm."""
        expected, coded = self.uplink.predicted(memory, cohort), self.uplink.coded(x)
        size = coded.square().sum().clamp(min=torch.finfo(coded.dtype).tiny)
        return {"predictor/ratio": (coded - expected).square().sum() / size}


def check_predictors(uplink: Compressor, downlink: Compressor, sends: str, optimizer: ServerOptimizer) -> None:
    """Raise ValueError if the predictors of the two directions do not fit what is sent."""
    if uplink.predictor is not None and uplink.predictor.starts_at_model:
        raise ValueError("compressor.predictor=ef21_p follows a model: it is the downlink's; take ef21 or aggregate")
    if downlink.observes:
        raise ValueError("downlink.predictor=aggregate makes no sense: the server sends to all; take ef21_p, or ef21")
    if downlink.predictor is not None and carries_model(downlink) != (sends == "model"):
        raise ValueError(
            f"downlink.predictor does not fit algorithm.sends={sends}: ef21_p follows the model (sends=model or auto), "
            "ef21 what is sent by update or mean"
        )
    steps_with_mean = isinstance(optimizer, Sgd) and optimizer.lr == 1 and not optimizer.momentum
    if uplink.observes and sends == "step" and not steps_with_mean:
        raise ValueError(
            "compressor.predictor=aggregate needs that clients know the mean, but with algorithm.sends=step and this "
            "server optimiser they are sent another step: take algorithm.sends=mean_update, or server.lr=1 without "
            "momentum"
        )
