"""FedDyn: the exact optimum, also of the mean over samples; its control variates are gradients; bits; wrong input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fedcomp.algorithm.heterogeneity import feddyn
from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.client.adam import Adam
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.wire import WireLink
from tests.algorithm.heterogeneous import D, Heterogeneous, N, Run, problem
from tests.looped import looped

DENSE, TOP4 = Compressor(Dense()), Compressor(TopK(k=4, positions="index"))
RAND4 = Compressor(RandK(k=4, scale="none"))
CLIENTS = problem(0)
TEN = Sgd(lr=0.1, steps=10)
EXACTLY = Sgd(lr=0.9, steps=150)
"""Steps enough for the minimum of a client's penalised loss."""


@pytest.mark.parametrize(
    ("algorithm", "participants", "rounds"),
    [
        (FedDyn(TEN, DENSE), None, 118),
        (FedDyn(TEN, DENSE), 3, 200),
        pytest.param(FedDyn(TEN, TOP4, 1.0), None, 300, marks=pytest.mark.thorough),
    ],
)
def test_reaches_the_optimum(algorithm: FedDyn, participants, rounds: int) -> None:
    found = Run(algorithm, CLIENTS, participants).rounds_to(1e-8, 2 * rounds)
    assert (found or 10**6) <= 1.5 * rounds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [(FedDyn(TEN, DENSE, 1.0), 324), (FedDyn(TEN, RAND4, 1.0), 356), (FedDyn(EXACTLY, DENSE), 76)],
)
def test_reaches_the_optimum_slowly(algorithm: FedDyn, rounds: int) -> None:
    found = Run(algorithm, CLIENTS).rounds_to(1e-8, 2 * rounds)
    assert (found or 10**6) <= 1.5 * rounds


def test_controls_are_gradients_at_exact_minima() -> None:
    run = Run(FedDyn(EXACTLY, DENSE, 0.5), CLIENTS)
    before = None
    for state in run.states(3):
        if before is not None:
            moves = (before.controls - state.controls) / 0.5
            assert torch.allclose(state.controls.double(), CLIENTS.gradients(before.theta + moves), atol=1e-4)
        before = state
    assert state.controls.norm() > 0.5


@looped("uplink, participants", [(DENSE, None), (TOP4, 3), (RAND4, None)])
def test_the_servers_control_is_the_mean_of_the_clients(uplink: Compressor, participants) -> None:
    for state in Run(FedDyn(TEN, uplink), CLIENTS, participants).states(10):
        assert torch.allclose(state.control, state.controls.mean(0), rtol=0, atol=1e-5)
    assert state.controls.norm() > 0.1


@pytest.mark.parametrize(("uplink", "participants"), [(DENSE, 3), (TOP4, None)])
def test_nothing_moves_at_the_fixed_point(uplink: Compressor, participants) -> None:
    run = Run(FedDyn(TEN, uplink), CLIENTS, participants)
    start = replace(run.init(CLIENTS.optimum), controls=CLIENTS.gradients(CLIENTS.optimum).float())
    for state in run.states(3, start):
        assert torch.allclose(state.theta, start.theta, rtol=0, atol=5e-5)
        assert torch.allclose(state.controls, start.controls, rtol=0, atol=2e-5)


def test_the_mean_of_the_models_is_evaluated_beside_the_servers() -> None:
    run = Run(FedDyn(TEN, DENSE), CLIENTS)
    state = run.once(run.init(), 0)
    models = run.algorithm.evaluation_models(state, Key())
    first, mean = models["test"].theta[0], models["mean"].theta[0]
    assert torch.allclose(first, mean - state.control / 0.1)
    assert not torch.allclose(first, mean, atol=1e-2)


def test_a_client_that_keeps_what_it_meant_to_send_makes_the_limit_wrong(monkeypatch) -> None:
    send, meant = feddyn.send_decoded, []

    def remember(name, uplink, x, cohort, ctx):
        meant.append(x)
        return send(name, uplink, x, cohort, ctx)

    monkeypatch.setattr(feddyn, "send_decoded", remember)
    monkeypatch.setattr(feddyn, "put_rows", lambda rows, cohort, new: rows - meant[-1])
    assert Run(FedDyn(TEN, TOP4, 1.0), CLIENTS).floor(150) > 0.5


def test_weights_by_samples_minimise_the_mean_over_samples() -> None:
    """The weighted objective's optimum, which is not that of the mean over clients."""
    weight = torch.tensor([0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05])

    class Weighted(Run):
        def cohort(self, index: int) -> Cohort:
            return Cohort.of(list(range(N)), weight)

    hessian = (weight.double()[:, None, None] * CLIENTS.hessians).sum(0)
    pull = (weight.double()[:, None] * CLIENTS.gradients(torch.zeros(D))).sum(0)
    optimum = torch.linalg.solve(hessian, -pull)
    run = Weighted(FedDyn(TEN, DENSE, weights="samples"), CLIENTS)
    *_, state = run.states(250)
    assert float((state.theta - optimum).square().sum() / optimum.square().sum()) < 1e-6
    assert CLIENTS.distance(optimum) > 0.1
    assert torch.allclose(state.control, weight @ state.controls, rtol=0, atol=1e-5)
    assert run.algorithm.full_participation
    assert not FedDyn(TEN, DENSE).full_participation


def test_bits_of_a_participant() -> None:
    run = Run(FedDyn(TEN, TOP4), CLIENTS, 3, link=WireLink)
    list(run.states(2))
    assert run.bits() == {"uplink": 3 * 4 * (32 + 6), "downlink": 3 * 32 * D, "broadcast": 32 * D}


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: FedDyn(TEN, DENSE, 0.0), "algorithm.alpha=0.0 must be a positive number"),
    (lambda: FedDyn(TEN, DENSE, weights="data"), "algorithm.weights=data must be one of samples, tokens, uniform"),
    (lambda: FedDyn(TEN, Compressor(RandK(k=4))), "FedDyn needs a compressor that only shrinks, not RandK as config"),
    (lambda: FedDyn(replace(TEN, proximal=0.1), DENSE), "client.proximal=0.1 does not go with FedDyn"),
    (lambda: FedDyn(TEN, replace(TOP4, feedback=ErrorFeedback())), "compressor.feedback must be none: FedDyn"),
    (
        lambda: FedDyn(TEN, Compressor.of(TopK(k=4), predictor="ef21")),
        "compressor.predictor must be none: FedDyn",
    ),
]


@looped("build, message", REFUSED)
def test_wrong_input(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_any_local_solver_will_do() -> None:
    assert Run(FedDyn(Adam(lr=0.02, steps=10), DENSE), Heterogeneous(CLIENTS.hessians, CLIENTS.centres)).floor(60) < 0.2
