"""FedScalar: every agent uploads the inner products of its local change with random vectors.

"FedScalar", arXiv:2410.02260v1 (2024), algorithm 1, with one vector for all agents (`vector=shared`); by their
abstracts, v2 and v3 (2026) let each agent draw its own and upload the seed too (`per_agent`). Departures from v1:
    the server sends a seed instead of v itself, which would cost as much as the model;
    the mean is over the m participants; line 9's 1/N, which shortens the expected step by m/N, is
    `normalise=population`;
    more than one projection, orthonormal directions and the downlink of scalars are ours.
The paper counts the uploaded scalars alone: no seeds, and nothing of the downlink.

The step's noise is that of the projection, about d ||mean delta||^2 a round for L = 1, whatever the distribution:
Rademacher vectors save the factor (d - 1) / (d + 1), not what Proposition 3.1 says (a test shows it).

Shape legend: N clients in all, L projections.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.downlinks.downlink import DenseModel, Downlink
from fedcomp.algorithm.downlinks.scalars import LastRound, ScalarDownlink, WeightedScalars
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates.local_training import train_locally
from fedcomp.client import LocalSolver
from fedcomp.compressor.projections.directions import Distribution
from fedcomp.compressor.projections.projection import DirectionKind, Projection, Vector
from fedcomp.compressor.seed import SeedCost, seed_field, seed_number
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Whole
from fedcomp.core.validate import options_of
from fedcomp.wire import Field, Payload, SharedKnowledge


@dataclass(frozen=True)
class FedScalarState(ModelState):
    """What lives from round to round. `replay`: memory of the downlink of scalars; empty where models are sent."""

    replay: LastRound


@dataclass(frozen=True)
class FedScalar(Algorithm):
    """x <- x + (1/c) sum_n r_n v_n with r_n = <delta_n, v_n>, delta_n the signed change of S local steps.

    Attributes:
        distribution, num_projections, directions: of the vectors, see `Projection`.
        normalise: c is the number of participants (their weights, under unequal probabilities) or the population, N.
        seed_cost: sent, 64 bits a round: down to participants (shared) or up from each (per_agent); derived, from the
            run's seed, the round and the agent's number.
        sends: model; scalar and shortest, see `ScalarDownlink`.
    """

    client: LocalSolver
    vector: Vector = "shared"
    distribution: Distribution = "rademacher"
    num_projections: Annotated[int, Whole()] = 1
    directions: DirectionKind = "independent"
    normalise: Literal["participants", "population"] = "participants"
    seed_cost: SeedCost = "sent"
    sends: Literal["model", "scalar", "shortest"] = "model"

    weights = "uniform"
    when_slow = (
        "one random projection of an update is mostly noise: more rounds, more algorithm.num_projections or "
        "another client.lr"
    )

    @property
    def codec(self) -> Projection:
        """What turns a local change into scalars."""
        return Projection(self.vector, self.distribution, self.num_projections, self.directions, self.seed_cost)

    @property
    def down(self) -> Downlink[LastRound, WeightedScalars]:
        """How the model gets to the agents; the paper counts nothing of it."""
        if self.sends == "model":
            return DenseModel(paper_bits=0)
        return ScalarDownlink(self.codec, shortest=self.sends == "shortest")

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedScalarState:
        """The first model. Raises ValueError: more orthonormal directions than parameters."""
        with options_of("algorithm"):
            self.codec.check_dim(theta.shape[0])
        replays = self.sends != "model"
        replay = LastRound.init(theta if replays else theta[:0], setup.num_clients if replays else 0, self.codec)
        return FedScalarState(theta, stats, replay)

    def round(self, state: FedScalarState, cohort: Cohort, ctx: Context) -> tuple[FedScalarState, Metrics]:
        codec, weight = self.codec, cohort.weight
        if self.normalise == "population":
            weight = torch.full_like(weight, 1 / ctx.clients.num_clients)
        common = self._common(cohort, ctx)
        start, stats, replay = self.down.send_model(state.theta, state.stats, state.replay, cohort, ctx)
        local, stats = train_locally(self.client, start, stats, cohort, ctx)
        received = ctx.link.up(codec.encode(local.value, common, ctx.sender_key("update")))
        message = _finite(codec.weighted(received, weight))
        number = common.seed if common.seed is not None else seed_number(message.fields["seed"].data)
        _, replay = self.down.send_mean(WeightedScalars(message.fields["scalars"].data, number), replay, cohort, ctx)
        step = codec.weighted_sum(message, common, weight.new_ones(message.num_rows))

        metrics = {"train/loss": local.loss, "message/scalar": received.fields["scalars"].data.abs().amax(1)}
        return FedScalarState(state.theta + step, stats, replay), metrics | _noise(step, weight @ local.value)

    def _common(self, cohort: Cohort, ctx: Context) -> SharedKnowledge:
        """What both ends know of the messages up: the seeds, unless they go up with them."""
        common = ctx.common("update", cohort)
        if self.vector == "per_agent":
            if self.seed_cost == "sent":
                return common
            return replace(common, seed=seed_number(common.key.fold_in("seed").bits(cohort.ids, 2)))
        server = ctx.common("direction", ctx.server(cohort.weight))
        if self.seed_cost == "sent":
            payload = Payload(seed_field("sent", server, ctx.sender_key("direction")), paper_bits=0)
            words = ctx.link.broadcast(payload, cohort).fields["seed"].data
        else:
            words = server.key.fold_in("seed").bits(server.ids, 2)
        return replace(common, seed=seed_number(words))


def _finite(message: Payload) -> Payload:
    """The message with 0 for scalars that are not finite; the metric `message/scalar` then stops the run."""
    scalars = message.fields["scalars"]
    kept = Field(scalars.data.nan_to_num(0.0, 0.0, 0.0), scalars.coding)
    return Payload({**message.fields, "scalars": kept}, message.paper_bits)


def _noise(step: Tensor, mean: Tensor) -> dict[str, Tensor]:
    """How noisy the step y is, given the mean change that it estimates.

    estimate/excess is ||y||^2 / ||mean||^2, in expectation d + 2 (Gaussian) or d (Rademacher, sphere) for one shared
    vector; estimate/variance is ||y - mean||^2 / ||mean||^2, in expectation tr Cov(y) / ||mean||^2: d + 1 or d - 1.
    """
    size = mean.square().sum(dtype=torch.float64).clamp(min=torch.finfo(torch.float64).tiny)
    excess = step.square().sum(dtype=torch.float64) / size
    return {"estimate/excess": excess, "estimate/variance": (step - mean).square().sum(dtype=torch.float64) / size}
