"""Estimators whose errors would grow from round to round are refused before the first one."""

import pytest
import torch
from omegaconf import DictConfig

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_runner, build_simulation
from fedcomp.participation.cohorts import mean_squares
from fedcomp.participation.contract import Participation
from tests.looped import looped
from tests.parts import Bernoulli, Full, Uniform
from tests.refused import one_line_error

CPU = torch.device("cpu")
SHARED = ("compressor=randk", "compressor.estimator=temporal_shared")
FORTY = (*SHARED, "num_clients=40")
HALF = ("participation=bernoulli", "participation.probability=0.5")
UNEQUAL = ("partition=dirichlet", "partition.alpha=0.3", "partition.balance=false")
DOWN = ("compressor@downlink=randk", "downlink.estimator=temporal_shared")
VECTORS = ("algorithm=mean_estimation", "num_clients=10", *SHARED)


def _compose(*overrides: str) -> DictConfig:
    return compose(["pictures=false", *overrides])


@looped(
    "overrides, growth",
    [
        (SHARED, "1.62"),  # 20 clients, 3 %
        (("compressor=random_mask", SHARED[1]), "1.62"),
        (("compressor=randk_temporal", "compressor.estimator.memory=shared"), "1.62"),
        ((*FORTY, "participation=uniform"), r"3\.2\d"),  # 10 of 40
        ((*FORTY, *HALF), r"1\.\d+"),  # weights 1 / 20, about 20
        ((*FORTY, *HALF[:1], "participation.probability=1", "participation.schedule={3: 0.5}"), r"1\.\d+"),
        ((*FORTY, *UNEQUAL), r"1\.\d+"),  # some have far more samples
        ((*VECTORS, "algorithm.memory=keep"), r"\d\.?\d*"),
    ],
)
def test_a_shared_memory_that_diverges_is_refused(overrides: tuple[str, ...], growth: str) -> None:
    wanted = rf"^compressor\.estimator: .* would diverge: .* \(1/p - 1\) sum w_i\^2 = {growth} every round"
    with one_line_error(wanted) as refused:
        build_simulation(_compose(*overrides), CPU)
    for remedy in ("(fraction)", "clients of equal weight", "estimator=temporal, or"):
        assert remedy in str(refused.value)


@looped(
    "overrides",
    [
        (*SHARED, "num_clients=33"),
        (*SHARED, "compressor.fraction=0.05"),
        ("compressor=randk", "compressor.estimator=temporal"),
        (*FORTY, "participation=uniform", "participation.num_participants=33", "algorithm.weights=uniform"),
        (*FORTY, *UNEQUAL, "algorithm.weights=uniform"),
        (*FORTY, "participation=bernoulli", "participation.probability=0.95"),
        (*DOWN, "downlink.fraction=0.6"),
        VECTORS,  # every round begins with an empty memory
    ],
)
def test_one_that_does_not_is_not(overrides: tuple[str, ...]) -> None:
    build_simulation(_compose(*overrides), CPU)


def test_the_remedies_are_enough() -> None:
    with pytest.raises(ValueError, match=r"share of 0\.049 or more .* let 33 or more clients"):
        build_simulation(_compose(*SHARED), CPU)
    build_simulation(_compose(*SHARED, "compressor.fraction=0.049"), CPU)


def test_the_server_is_the_only_sender_down() -> None:
    with pytest.raises(ValueError, match=r"^downlink\.estimator: .* = 1\.5 every round.* or more \(fraction"):
        build_simulation(_compose(*DOWN, "downlink.fraction=0.4"), CPU)


def test_every_repetition_with_its_own_clients_is_looked_at() -> None:
    config = _compose(*FORTY, *UNEQUAL, "compressor.fraction=0.027", "repeats=2")
    equal = _compose(*FORTY, "compressor.fraction=0.027")  # clients of the first one have equally many samples
    simulation, _ = build_simulation(equal, CPU)
    with pytest.raises(ValueError, match="would diverge"):
        build_runner(simulation, config)


@looped("rule", [Full(), Uniform(4), Bernoulli(0.2), Bernoulli([0.2, 0.5, 1, 0.4, 0.9, 0.3, 0.6, 1])])
def test_mean_of_the_squared_weights(rule: Participation) -> None:
    equal, unequal = torch.ones(8, dtype=torch.float64), torch.arange(1, 9, dtype=torch.float64)
    share = unequal / unequal.sum()
    if isinstance(rule, Bernoulli):  # sum_i share_i^2 / p_i, divided by the probability that somebody takes part
        p = rule.inclusion(8)
        wanted = float((share.square() / p).sum() / (1 - (1 - p).prod()))
        assert mean_squares(rule, unequal, 0) == pytest.approx(wanted, rel=0.05)
        return
    assert mean_squares(rule, equal, 0) == pytest.approx(1 / 8 if rule == Full() else 1 / 4)
    exact = float(share.square().sum())
    assert (mean_squares(rule, unequal, 0) == pytest.approx(exact)) == (rule == Full())


EF21 = ("compressor=topk", "compressor.predictor=ef21")


@looped("overrides", [HALF, ("participation=uniform",)])
def test_predicted_senders_who_may_be_idle_count_alike_or_are_refused(overrides: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"^algorithm\.weights=samples does not go with compressor\.predictor=ef21"):
        build_simulation(_compose(*EF21, *overrides), CPU)
    build_simulation(_compose(*EF21, *overrides, "algorithm.weights=uniform"), CPU)
    build_simulation(_compose(*EF21), CPU)
