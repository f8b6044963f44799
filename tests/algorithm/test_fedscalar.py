"""FedScalar: where it is FedAvg, what every link carries, replayed models, and scalars that are not finite."""

from dataclasses import replace

import pytest
import torch

from fedcomp.algorithm.downlinks.scalars import ScalarDownlink
from fedcomp.algorithm.fedscalar import FedScalar
from fedcomp.simulation.divergence import Diverged, DivergenceMonitor
from fedcomp.wire import Link
from tests.conformance import world
from tests.looped import looped
from tests.parts import Bernoulli, Cohorts, Compressor, Dense, FedAvg, ServerSgd, Sgd
from tests.rounds import one_round, rounds

SGD = Sgd(lr=0.01, batch_size=4, steps=3)
FEDAVG = FedAvg(SGD, ServerSgd(), Compressor(Dense()), Compressor(Dense()), "uniform")
DIM = world.NUM_FEATURES * 4 + 4 + 4 * world.NUM_CLASSES + world.NUM_CLASSES


def _after(algorithm, rounds: int = 3, **options) -> torch.Tensor:
    return world.run(world.simulation(algorithm, rounds=rounds, **options)).theta


@looped("vector", ["shared", "per_agent"])
def test_all_orthonormal_directions_are_fedavg(vector: str) -> None:
    algorithm = FedScalar(SGD, vector, num_projections=DIM, directions="orthonormal")
    assert torch.allclose(_after(algorithm), _after(FEDAVG), atol=1e-6)
    assert float(one_round(world.simulation(algorithm)).metrics["estimate/variance"]) < 1e-6
    fewer = replace(algorithm, num_projections=DIM - 1)
    assert not torch.allclose(_after(fewer), _after(FEDAVG), atol=1e-4)


@pytest.mark.thorough
def test_one_agent_shared_and_own_vectors_are_alike() -> None:
    """N = 1: the step's square length over rounds has the same mean and spread, here within 5 standard errors."""
    excess = {}
    for vector in ("shared", "per_agent"):
        sim = world.simulation(FedScalar(SGD, vector), participation=world.FULL, sizes=(20,))
        start = sim.init()
        excess[vector] = torch.stack([one_round(sim, start, index).metrics["estimate/excess"] for index in range(150)])
    error = (sum(values.var() for values in excess.values()) / 150).sqrt()
    assert (excess["shared"].mean() - excess["per_agent"].mean()).abs() < 5 * error
    assert (excess["shared"].mean() - DIM).abs() < 5 * (excess["shared"].var() / 150).sqrt()
    assert not torch.equal(excess["shared"], excess["per_agent"])


@looped("vector", ["shared", "per_agent"])
def test_normalisations_agree_with_all_and_differ_by_the_share_with_some(vector: str) -> None:
    both = [FedScalar(SGD, vector, normalise=name) for name in ("participants", "population")]
    mean, literal = (_after(algorithm, 2, participation=world.FULL) for algorithm in both)
    assert torch.allclose(mean, literal, rtol=1e-5, atol=1e-7)
    start = world.simulation(both[0]).init().theta
    mean, literal = (_after(algorithm, 1) - start for algorithm in both)
    assert torch.allclose(literal, mean * 3 / world.NUM_CLIENTS, rtol=1e-3, atol=1e-7)


def test_unequal_probabilities_are_weighted_as_the_participation_says() -> None:
    rule = Bernoulli(probability=[0.9, 0.5, 0.9, 0.3, 0.9, 0.9, 0.9])
    full = FedScalar(SGD, num_projections=DIM, directions="orthonormal")
    assert torch.allclose(_after(full, 1, participation=rule), _after(FEDAVG, 1, participation=rule), atol=1e-6)


LINKS = [
    ("shared", "sent", 1, 32, 32 * DIM + 64),
    ("shared", "derived", 1, 32, 32 * DIM),
    ("shared", "sent", 5, 5 * 32, 32 * DIM + 64),
    ("per_agent", "sent", 1, 96, 32 * DIM),
    ("per_agent", "sent", 5, 5 * 32 + 64, 32 * DIM),
    ("per_agent", "derived", 2, 64, 32 * DIM),
]


@looped("how", ["independent", "orthonormal"])
@looped("vector, seed, num, uplink, downlink", LINKS)
def test_bits_of_every_link(vector: str, seed: str, num: int, uplink: int, downlink: int, how: str) -> None:
    bits = one_round(world.simulation(FedScalar(SGD, vector, "gaussian", num, how, seed_cost=seed))).bits
    assert (bits["uplink"], bits["downlink"], bits["broadcast"]) == (3 * uplink, 3 * downlink, downlink)
    assert (bits["paper/uplink"], bits["paper/downlink"], bits["paper/broadcast"]) == (3 * 32 * num, 0, 0)


REPLAYS = [  # (vector, seed, L) -> bits down for an agent that replays P messages among N clients, first round's bits
    ("shared", "sent", 1, lambda last: 96, 64),
    ("shared", "derived", 2, lambda last: 64, 0),
    ("per_agent", "sent", 2, lambda last: last * (64 + 64), 0),
    ("per_agent", "derived", 1, lambda last: last * (32 + 3), 0),
]
SCHEDULE = ((0, 1, 2), (1, 2, 5), (5,), (3, 4), (3, 4, 5), (0, 1, 2, 3, 4, 5, 6), (0, 6))


@pytest.mark.parametrize("how", ["independent", "orthonormal"])
@pytest.mark.parametrize(("vector", "seed", "num", "replayed_bits", "first_bits"), REPLAYS)
def test_replayed_models_are_the_servers_bit_for_bit(
    vector, seed, num, replayed_bits, first_bits, how, monkeypatch
) -> None:
    algorithm = FedScalar(SGD, vector, "gaussian", num, how, seed_cost=seed, sends="scalar")
    sim = world.simulation(algorithm, participation=Cohorts(SCHEDULE), rounds=len(SCHEDULE))
    replays, original = [], ScalarDownlink._send_step

    def noted(self, *args):
        replays.append(original(self, *args))
        return replays[-1]

    monkeypatch.setattr(ScalarDownlink, "_send_step", noted)
    for index, (cohort, one) in enumerate(zip(SCHEDULE, rounds(sim), strict=True)):
        present = cohort if not index else [client for client in cohort if client in SCHEDULE[index - 1]]
        assert len(replays) == bool(present)
        assert all(torch.equal(theta, one.before.theta) for theta in replays)
        replays.clear()
        if not index:
            assert one.bits["downlink"] == first_bits * len(cohort)
            continue
        seeds = 64 * len(cohort) if (vector, seed) == ("shared", "sent") else 0
        bits = replayed_bits(len(SCHEDULE[index - 1])) - (64 if seeds else 0)
        models = 32 * DIM * (len(cohort) - len(present))
        assert one.bits["downlink"] == seeds + models + bits * len(present)
        assert one.bits["paper/downlink"] == 0
    plain = world.simulation(replace(algorithm, sends="model"), participation=Cohorts(SCHEDULE), rounds=len(SCHEDULE))
    assert torch.equal(world.run(plain).theta, one.after.theta)


@looped("num, sends", [(DIM // world.NUM_CLIENTS, "model"), (1, "scalars")])
def test_the_shorter_of_scalars_and_model_goes_down(num: int, sends: str) -> None:
    """Each agent's scalars and seed for everybody: with so many projections more bits than the model has."""
    algorithm = FedScalar(SGD, "per_agent", num_projections=num, sends="shortest")
    _, second = rounds(world.simulation(algorithm, participation=world.FULL), 2)
    bits = {"scalars": world.NUM_CLIENTS * (32 * num + 64), "model": 32 * DIM}
    assert bits[sends] == min(bits.values())
    assert second.bits["downlink"] == world.NUM_CLIENTS * bits[sends]
    assert torch.equal(second.after.theta, _after(replace(algorithm, sends="model"), 2, participation=world.FULL))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("vector", ["shared", "per_agent"])
def test_a_scalar_that_is_not_finite_enters_no_model_and_stops_the_run(vector: str, bad: float, monkeypatch) -> None:
    algorithm = FedScalar(SGD, vector, sends="scalar")
    sim = world.simulation(algorithm, participation=world.FULL)
    carried = Link.up

    def spoilt(self, payload):
        payload.fields["scalars"].data[4] = bad
        return carried(self, payload)

    monkeypatch.setattr(Link, "up", spoilt)
    one = one_round(sim)
    assert torch.isfinite(one.after.theta).all()
    assert torch.isfinite(one.after.replay.scalars).all()
    with pytest.raises(Diverged, match=r"round 1: the message/scalar of client 4 is (nan|inf); lower client.lr"):
        DivergenceMonitor().add(1, one.cohort, one.metrics)


def test_more_directions_than_parameters_are_refused_before_the_first_round() -> None:
    algorithm = FedScalar(SGD, num_projections=DIM + 1, directions="orthonormal")
    with pytest.raises(ValueError, match=f"algorithm.num_projections={DIM + 1}: vectors of {DIM} entries"):
        world.simulation(algorithm).init()
