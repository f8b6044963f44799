"""Mean estimation: its error is the average of independent one-shot errors, and memories persist only if asked."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.tasks.mean_estimation import MeanEstimation
from fedcomp.dataset.tables.vectors import load
from fedcomp.model.tasks.mean_vector import MeanVector
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Field, Ledger, Payload, SharedKnowledge
from fedcomp.wire.coding import Float
from tests.conformance import world
from tests.looped import looped
from tests.parts import Codec, Compressor, Dense, ErrorFeedback, RandK, Temporal, TopK, WeightedSum

N, D = 10, 100


@dataclass(frozen=True)
class Noisy(Codec):
    """Adds independent standard normal noise: the mean's squared error is chi-squared, with mean d/n."""

    unbiased = True

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        return Payload({"values": Field(x + sender_key.normal(common.ids, common.dim), Float())})

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        return payload.fields["values"].data


@dataclass(frozen=True)
class Stated(WeightedSum):
    """States its error, as an estimator may."""

    def expected_error(self, codec, x: Tensor) -> Tensor | None:
        assert x.shape == (N, D)
        return torch.tensor(D / N) if isinstance(codec, Noisy) else None


def _simulation(algorithm: MeanEstimation, columns: int = 50, rounds: int = 5) -> Simulation:
    dataset, cpu = load(num=N, dim=D, columns=columns), torch.device("cpu")
    shards = ClientShards.of([torch.tensor([client]) for client in range(N)], cpu)
    model = MeanVector(dataset.input_shape, dataset.inputs(dataset.train))
    return Simulation(algorithm, dataset, shards, model, world.FULL, Key(("run", 0)), rounds, 100)


def _run(sim: Simulation):
    state, metrics = sim.init(), {}
    for index in range(sim.rounds):
        state, result = sim.round(index, state, Ledger())
        metrics = result.metrics
    return state, {name: float(value.mean()) for name, value in metrics.items()}


def test_mse_is_the_expected_one_within_its_standard_error() -> None:
    rounds = 400
    _, metrics = _run(_simulation(MeanEstimation(Compressor(Noisy(), estimator=Stated())), rounds=rounds))
    expected, error = D / N, (2 / D / rounds) ** 0.5 * D / N  # variance of chi-squared: 2 d (1/n)^2
    assert abs(metrics["mse"] - expected) < 5 * error
    assert metrics["mse/error"] == pytest.approx(error, rel=0.2)  # 400 draws give it within 1/sqrt(800) = 3.5 %
    assert metrics["mse/closed_form"] == D / N


def test_temporal_memory_makes_later_rounds_exact() -> None:
    """Static vectors: once every entry has been sent, what the server remembers is the vector itself."""
    algorithm = MeanEstimation(Compressor(RandK(0.5), estimator=Temporal()), "keep")
    sim = _simulation(algorithm, rounds=30)  # an entry is still unsent with probability 2^-30
    state, _ = _run(sim)
    assert sim.test_metrics(30, state)["test/error"] < 1e-10
    reset = _simulation(MeanEstimation(algorithm.uplink, "reset"), rounds=30)
    assert reset.test_metrics(30, _run(reset)[0])["test/error"] > 0.01


@looped("columns", [0, 30, 100])
def test_a_lossless_estimate_has_no_error(columns: int) -> None:
    sim = _simulation(MeanEstimation(Compressor(Dense(), estimator=Stated())), columns)
    state, metrics = _run(sim)
    assert metrics["mse"] < 1e-12
    assert "mse/closed_form" not in metrics
    assert metrics["vectors/correlation"] == pytest.approx(columns / 10 - 1, abs=1e-5)
    assert sim.test_metrics(5, state)["test/error"] < 1e-12
    wanted = torch.cat((torch.full((columns,), 0.1), torch.zeros(D - columns)))
    assert torch.allclose(state.theta, wanted, atol=1e-7)


def test_memory_is_reset_or_kept() -> None:
    """With error feedback a second round differs from the first; reset, every round is the first one again."""
    uplink = Compressor(TopK(0.1, "index"), ErrorFeedback())
    reset, kept = (_simulation(MeanEstimation(uplink, memory), rounds=3) for memory in ("reset", "keep"))
    once, _ = _run(_simulation(MeanEstimation(uplink), rounds=1))
    last, _ = _run(reset)
    assert torch.equal(last.theta, once.theta)
    assert not last.uplink.sender.any()
    other, metrics = _run(kept)
    assert not torch.equal(other.theta, once.theta)
    assert other.uplink.sender.any()
    assert other.errors[0] == 3
    assert metrics["mse"] == pytest.approx(float(other.errors[1] / 3))
