"""SCAFFOLD and SCALLION: the exact optimum where FedAvg and plain compression stop; invariants, reductions, bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.algorithm.heterogeneity import scallion
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.algorithm.heterogeneity.scallion import Scallion
from fedcomp.client.adam import Adam
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.estimators.spatial import Spatial
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.mrc.mrc_sign import MRCSign
from fedcomp.compressor.rotations.eden import Eden
from fedcomp.compressor.sparsifiers.permk import PermK
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.server.sgd import Sgd as ServerSgd
from fedcomp.wire import WireLink
from tests.algorithm.heterogeneous import D, N, Run, problem
from tests.looped import looped

DENSE, RAND4, TOP4 = Compressor(Dense()), Compressor(RandK(k=4)), Compressor(TopK(k=4, positions="index"))
TOP10_DOWN = Compressor(TopK(k=10, positions="index"), ErrorFeedback())
STEP, CLIENTS = ServerSgd(), problem(0)
TEN = Sgd(lr=0.1, steps=10)
SLOWLY = Sgd(lr=0.02, steps=10)
UNEQUAL = replace(CLIENTS, steps=(14, 12, 10, 8, 6, 4, 2))
FALLING = Sgd(lr=0.12, schedule="exponential", lr_final=0.998, epochs=10)
"""At the end of the test the learning rate is a third of the first."""

EXACT = [
    ("scaffold", Scaffold(TEN, STEP, DENSE), CLIENTS, None, 324),
    pytest.param("scaffold-3 of 7", Scaffold(TEN, STEP, DENSE), CLIENTS, 3, 324, marks=pytest.mark.thorough),
    ("scallion-rand4", Scallion(TEN, STEP, RAND4, DENSE), CLIENTS, None, 330),
]
SLOWLY_EXACT = [
    ("scaffold-I", Scaffold(TEN, STEP, DENSE, "I"), CLIENTS, None, 324),
    ("scaffold-unequal steps", Scaffold(TEN, STEP, DENSE), UNEQUAL, 3, 600),
    ("scaffold-rand4", Scaffold(SLOWLY, STEP, RAND4), CLIENTS, None, 1625),
    ("scallion-3 of 7", Scallion(SLOWLY, STEP, RAND4, DENSE), CLIENTS, 3, 1657),
    ("scallion-top4", Scallion(SLOWLY, STEP, TOP4, DENSE), CLIENTS, None, 1599),
    ("scallion-top10 down", Scallion(SLOWLY, STEP, RAND4, TOP10_DOWN), CLIENTS, None, 1668),
    ("scallion-unequal steps", Scallion(TEN, STEP, RAND4, DENSE), UNEQUAL, None, 900),
]


@pytest.mark.parametrize(("name", "algorithm", "clients", "participants", "rounds"), EXACT)
def test_reaches_the_optimum(name: str, algorithm: Algorithm, clients, participants, rounds: int) -> None:
    found = Run(algorithm, clients, participants).rounds_to(1e-8, 2 * rounds)
    assert (found or 10**6) <= 1.5 * rounds


@pytest.mark.slow
@pytest.mark.parametrize(("name", "algorithm", "clients", "participants", "rounds"), SLOWLY_EXACT)
def test_reaches_the_optimum_slowly(name: str, algorithm: Algorithm, clients, participants, rounds: int) -> None:
    found = Run(algorithm, clients, participants).rounds_to(1e-8, 2 * rounds)
    assert (found or 10**6) <= 1.5 * rounds


def test_fedavg_stops_short() -> None:
    assert 1e-2 < Run(FedAvg(TEN, STEP, DENSE, DENSE, "uniform"), CLIENTS).floor(200) < 3e-2


@pytest.mark.slow
def test_a_falling_learning_rate_and_unequal_steps_leave_the_limit_where_it_is() -> None:
    """With the first learning rate in the control variates, or with one number of steps, the limit is another."""
    for algorithm in (Scaffold(FALLING, STEP, DENSE), Scallion(FALLING, STEP, RAND4, DENSE)):
        states = list(Run(algorithm, UNEQUAL).states(550))
        assert CLIENTS.distance(states[-1].theta) < 1e-6


FIXED_POINTS = [
    (Scaffold(TEN, STEP, RAND4), None, CLIENTS),
    (Scaffold(TEN, STEP, TOP4, "I"), 3, UNEQUAL),
    (Scallion(TEN, STEP, RAND4, DENSE), 3, UNEQUAL),
    (Scallion(Sgd(lr=0.3, steps=1), STEP, TOP4, TOP10_DOWN), None, CLIENTS),
]


@looped("algorithm, participants, clients", FIXED_POINTS)
@looped("seed", [1, 2])
def test_nothing_moves_at_the_fixed_point(algorithm: Algorithm, participants, clients, seed: int) -> None:
    run = Run(algorithm, clients, participants, seed)
    start = replace(run.init(CLIENTS.optimum), controls=CLIENTS.gradients(CLIENTS.optimum).float())
    for state in run.states(3, start):
        assert torch.allclose(state.theta, start.theta, rtol=0, atol=2e-5)
        assert torch.allclose(state.controls, start.controls, rtol=0, atol=2e-5)
        assert float(state.control.abs().max()) < 2e-5


INVARIANT = [
    (Scaffold(SLOWLY, STEP, RAND4), None),
    (Scaffold(TEN, STEP, TOP4, "I"), 3),
    (Scallion(TEN, STEP, RAND4, DENSE), 3),
    (Scallion(TEN, STEP, Compressor(PermK()), DENSE, sends="mean_update"), None),
    (Scallion(TEN, STEP, TOP4, DENSE), 2),
]


@looped("algorithm, participants", INVARIANT)
def test_the_servers_control_is_the_mean_of_the_clients(algorithm: Algorithm, participants) -> None:
    run = Run(algorithm, CLIENTS, participants)
    for state in run.states(12):
        assert torch.allclose(state.control, state.controls.mean(0), rtol=0, atol=1e-5)
        assert ("control/sum" in run.metrics) == (participants is None)
    assert state.controls.norm() > 0.1
    assert float(run.metrics.get("control/sum", torch.zeros(()))) < 1e-5


@pytest.mark.slow
def test_a_lossy_downlink_leaves_a_gap_which_its_memory_closes() -> None:
    run = Run(Scallion(TEN, STEP, RAND4, TOP10_DOWN), CLIENTS)
    gaps = []
    for _ in run.states(300):
        gaps.append(float(run.metrics["control/sum"]))
    assert max(gaps[:30]) > 0.05
    assert gaps[-1] < 0.05 * max(gaps)


@pytest.mark.slow
def test_without_the_servers_memory_the_limit_is_wrong(monkeypatch) -> None:
    right = Run(Scallion(TEN, STEP, RAND4, TOP10_DOWN), CLIENTS).floor(300)
    monkeypatch.setattr(scallion, "NoFeedback", ErrorFeedback)  # which lets what is refused pass
    wrong = Run(Scallion(TEN, STEP, RAND4, Compressor(TopK(k=10))), CLIENTS).floor(300)
    assert right < 1e-4
    assert wrong > 0.1


@pytest.mark.thorough
def test_a_client_that_keeps_what_it_meant_to_send_makes_the_limit_wrong(monkeypatch) -> None:
    algorithm = Scallion(TEN, STEP, RAND4, DENSE)
    right = Run(algorithm, CLIENTS).floor(250)
    meant = []
    send = scallion.send_decoded

    def remember(name, uplink, x, cohort, ctx):
        meant.append(x)
        return send(name, uplink, x, cohort, ctx)

    monkeypatch.setattr(scallion, "send_decoded", remember)
    monkeypatch.setattr(scallion, "put_rows", lambda rows, cohort, new: rows + meant[-1])
    assert right < 1e-4
    assert Run(algorithm, CLIENTS).floor(250) > 1e-2


def _same(one: Algorithm, other: Algorithm, rounds: int, participants: int | None = None, atol: float = 1e-5) -> None:
    left, right = (Run(each, CLIENTS, participants) for each in (one, other))
    for here, there in zip(left.states(rounds), right.states(rounds), strict=True):
        assert torch.allclose(here.theta, there.theta, rtol=0, atol=atol)
    assert here.theta.norm() > 0.1


def test_first_rounds_are_fedavg_and_scallion_with_a_dense_codec_is_scaffold() -> None:
    fedavg = FedAvg(TEN, STEP, DENSE, DENSE, "uniform")
    _same(Scaffold(TEN, STEP, DENSE), fedavg, 1)
    _same(Scallion(TEN, ServerSgd(0.7), DENSE, DENSE), Scaffold(TEN, ServerSgd(0.7), DENSE), 8, 3)
    _same(Scallion(TEN, STEP, DENSE, DENSE, sends="mean_update"), Scaffold(TEN, STEP, DENSE), 8, 3)
    once = Sgd(lr=0.5, steps=1)
    _same(Scaffold(once, STEP, DENSE), FedAvg(once, STEP, DENSE, DENSE, "uniform"), 8)


def test_alike_clients_make_it_fedavg() -> None:
    alike = replace(CLIENTS, hessians=CLIENTS.hessians[:1].expand(N, -1, -1), centres=CLIENTS.centres[:1].expand(N, -1))
    for algorithm in (Scaffold(TEN, STEP, DENSE), Scallion(TEN, STEP, DENSE, DENSE)):
        fedavg = Run(FedAvg(TEN, STEP, DENSE, DENSE, "uniform"), alike)
        for here, there in zip(Run(algorithm, alike).states(6), fedavg.states(6), strict=True):
            assert torch.allclose(here.theta, there.theta, rtol=0, atol=1e-5)


ENTRY = 32 + 6
"""A value and its place among 40."""


@looped(
    "algorithm, up, down",
    [
        (Scaffold(TEN, STEP, DENSE), 2 * 32 * D, 2 * 32 * D),
        (Scaffold(TEN, STEP, TOP4, "I"), 2 * 4 * ENTRY, 2 * 32 * D),
        (Scallion(TEN, STEP, TOP4, DENSE), 4 * ENTRY, 2 * 32 * D),
        (Scallion(replace(TEN, steps=None), STEP, TOP4, DENSE), 4 * ENTRY + 32, 2 * 32 * D),
    ],
)
def test_bits_of_a_participant(algorithm: Algorithm, up: int, down: int) -> None:
    run = Run(algorithm, CLIENTS, 3, link=WireLink)
    list(run.states(2))
    assert run.bits() == {"uplink": 3 * up, "downlink": 3 * down, "broadcast": down}


def test_the_mean_goes_to_everybody() -> None:
    run = Run(Scallion(TEN, STEP, TOP4, TOP10_DOWN), CLIENTS, 3, link=WireLink)
    list(run.states(2))
    down = 10 * ENTRY + 32
    assert run.bits() == {"uplink": 3 * 4 * ENTRY, "downlink": N * down, "broadcast": down}


def test_floats_of_16_bits_are_what_goes_down() -> None:
    """With the memory of their rounding at the server; x and c in 32 bits would not be what was asked for."""
    half = Compressor(Dense("float16"), ErrorFeedback())
    run = Run(Scallion(TEN, STEP, TOP4, half), CLIENTS, 3, link=WireLink)
    *_, state = run.states(3)
    down = 16 * D + 32
    assert run.bits() == {"uplink": 3 * 4 * ENTRY, "downlink": N * down, "broadcast": down}
    assert 0 < float(state.downlink.sender.abs().max()) < 1e-3


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Scaffold(TEN, STEP, DENSE, "III"), "algorithm.option=III must be one of I, II"),
    (lambda: Scaffold(replace(TEN, momentum=0.9), STEP, DENSE), "plain steps, but client.momentum=0.9 was given"),
    (lambda: Scaffold(Adam(lr=0.1), STEP, DENSE), "needs plain steps, but client=adam was given"),
    (lambda: Scallion(replace(TEN, clip_norm=1.0), STEP, DENSE, DENSE), "but client.clip_norm=1.0 was given"),
    (lambda: Scaffold(replace(TEN, proximal=0.1), STEP, DENSE), "client.proximal=0.1 does not go with SCAFFOLD"),
    (lambda: Scaffold(TEN, STEP, DENSE, alpha=0), r"algorithm.alpha=0 must be a number in \(0, 1\]"),
    (lambda: Scallion(TEN, STEP, DENSE, DENSE, alpha=1.5), r"algorithm.alpha=1.5 must be a number in \(0, 1\]"),
    (lambda: Scaffold(TEN, STEP, replace(TOP4, feedback=ErrorFeedback())), "compressor.feedback must be none"),
    (lambda: Scaffold(TEN, STEP, replace(RAND4, estimator=Spatial("avg"))), "compressor.estimator must be weighted_"),
    (lambda: Scallion(TEN, STEP, Compressor(MRCSign(block=8)), DENSE), "unbiased or only shrinks, and MRCSign as conf"),
    (
        lambda: Scallion(TEN, STEP, RAND4, DENSE, sends="both"),
        "algorithm.sends=both must be one of auto, model, mean_update",
    ),
    (lambda: Scallion(TEN, STEP, RAND4, TOP10_DOWN, sends="model"), "algorithm.sends=model needs a dense downlink"),
    (lambda: Scallion(TEN, STEP, RAND4, TOP4), "downlink.feedback=none makes the control variates .* differ for ever"),
    (lambda: Scallion(TEN, STEP, RAND4, RAND4), "downlink.feedback=none makes the control variates"),
    (lambda: Scallion(TEN, STEP, RAND4, Compressor(Dense("float16"))), "downlink.feedback=none makes the control"),
    (
        lambda: Run(Scallion(TEN, STEP, RAND4, DENSE, 0.2), CLIENTS).init(),
        r"is above 1 / \(1 \+ omega\) = 0.1 of RandK",
    ),
    (lambda: Run(Scaffold(TEN, STEP, RAND4, alpha=0.2), CLIENTS).init(), "take algorithm.alpha=null, or less"),
    (
        lambda: Run(Scaffold(TEN, STEP, Compressor(Eden())), CLIENTS).init(),
        "omega of Eden has no closed form: give alg",
    ),
]


@looped("build, message", REFUSED)
def test_wrong_input(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_option_one_goes_with_momentum_and_a_given_alpha_with_any_codec() -> None:
    Scaffold(replace(TEN, momentum=0.9), STEP, DENSE, "I")
    Run(Scaffold(TEN, STEP, Compressor(Eden()), alpha=0.4), CLIENTS).init()
