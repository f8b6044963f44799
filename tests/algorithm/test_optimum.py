"""Methods that reach the exact optimum of clients that differ: how soon, that they stay, what they reduce to; bits.

Each is held to its equations in `heterogeneity/test_plain_rounds.py` and `exact/test_plain_rounds.py`, round by round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedcomp.algorithm.bidirectional.m3 import M3
from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.exact.gradient_estimate import GradientEstimate
from fedcomp.algorithm.exact.locodl import LoCoDL
from fedcomp.algorithm.exact.tamuna import Tamuna
from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.algorithm.heterogeneity.scallion import Scallion
from fedcomp.wire import WireLink
from tests.algorithm.heterogeneous import D, N, Run, problem
from tests.looped import looped
from tests.parts import DENSE, GD, Compressor, Dense, ErrorFeedback, FedAvg, PermK, RandK, ServerSgd, Sgd, TopK

STEP, CLIENTS, MU = ServerSgd(), problem(0), 0.02
ALIKE = replace(CLIENTS, hessians=CLIENTS.hessians[:1].expand(N, -1, -1), centres=CLIENTS.centres[:1].expand(N, -1))
UNEQUAL = replace(CLIENTS, steps=(14, 12, 10, 8, 6, 4, 2))
TEN, SLOWLY, ONCE = Sgd(lr=0.1, steps=10), Sgd(lr=0.02, steps=10), Sgd(lr=0.5, steps=1)
EXACTLY = Sgd(lr=0.9, steps=150)
"""Steps enough for the minimum of a client's penalised loss."""
RAND4, SEEDLESS = Compressor(RandK(k=4)), Compressor(RandK(k=4, seed_cost="derived"))
SHRUNK4, TOP4 = Compressor(RandK(k=4, scale="none")), Compressor(TopK(k=4, positions="index"))
PERMK, TOP10_DOWN = Compressor(PermK()), Compressor(TopK(k=10, positions="index"), ErrorFeedback())
BALANCED = LoCoDL(GD(lr=1.0), SEEDLESS, None, convexity=MU)
DASHA = GradientEstimate(GD(lr=16 * 0.0482), STEP, SEEDLESS)
MARINA = GradientEstimate(GD(lr=4 * 0.228), STEP, SEEDLESS, "marina")
FAR, CONSTANTS = GD(lr=2 / 1.02), {"smoothness": 1.0, "convexity": MU}


def _marina_p(lr: float = 4 * 0.34, p: float = 1 / 7, down: Compressor = PERMK) -> M3:
    return M3(GD(lr=lr), STEP, DENSE, down, p_down=p, p_up=1, beta=1, uplink_entries="compressor")


FAST = [
    (Scaffold(TEN, STEP, DENSE), CLIENTS, None, 324),
    (Scallion(TEN, STEP, RAND4, DENSE), CLIENTS, None, 330),
    (FedDyn(TEN, DENSE), CLIENTS, None, 118),
    (FedDyn(TEN, DENSE), CLIENTS, 3, 200),
    (DASHA, CLIENTS, None, 485),
    (MARINA, CLIENTS, None, 363),
    (LoCoDL(GD(lr=2.0), SEEDLESS, 1.0, convexity=MU), CLIENTS, None, 558),
    (replace(BALANCED, uplink=DENSE), CLIENTS, None, 75),
    (Tamuna(FAR, 7, None, **CONSTANTS), CLIENTS, None, 81),
    (Tamuna(FAR, 2, 0.265), CLIENTS, 4, 521),  # a client that learns of its round too late stops at 0.33
    (_marina_p(), CLIENTS, None, 233),
]
THOROUGH = [(Scaffold(TEN, STEP, DENSE), CLIENTS, 3, 324), (FedDyn(TEN, TOP4, 1.0), CLIENTS, None, 300)]
SLOW = [
    (Scaffold(TEN, STEP, DENSE, "I"), CLIENTS, None, 324),
    (Scaffold(TEN, STEP, DENSE), UNEQUAL, 3, 600),
    (Scaffold(SLOWLY, STEP, RAND4), CLIENTS, None, 1625),
    (Scallion(SLOWLY, STEP, RAND4, DENSE), CLIENTS, 3, 1657),
    (Scallion(SLOWLY, STEP, TOP4, DENSE), CLIENTS, None, 1599),
    (Scallion(SLOWLY, STEP, RAND4, TOP10_DOWN), CLIENTS, None, 1668),
    (Scallion(TEN, STEP, RAND4, DENSE), UNEQUAL, None, 900),
    (FedDyn(TEN, DENSE, 1.0), CLIENTS, None, 324),
    (FedDyn(TEN, SHRUNK4, 1.0), CLIENTS, None, 356),
    (FedDyn(EXACTLY, DENSE), CLIENTS, None, 76),
    (replace(DASHA, client=GD(lr=0.127)), CLIENTS, None, 2546),
    (replace(DASHA, client=GD(lr=4 * 0.0482), start="gradient"), CLIENTS, None, 1712),
    (replace(MARINA, client=GD(lr=0.228)), CLIENTS, None, 1411),
    (replace(MARINA, uplink=PERMK), CLIENTS, None, 363),
    (replace(BALANCED, p=0.5), CLIENTS, None, 669),
    (replace(BALANCED, p=0.5, schedule="period"), CLIENTS, None, 676),
    (replace(BALANCED, uplink=PERMK), CLIENTS, None, 505),
    (replace(BALANCED, relay=True), CLIENTS, None, 558),
    (replace(BALANCED, uplink=TOP4, omega=0.0, p=0.2, rho=1.0, chi=1.0), CLIENTS, None, 279),
    (Tamuna(FAR, 2, None, **CONSTANTS), CLIENTS, None, 490),
    (Tamuna(FAR, 2, 0.265), CLIENTS, 2, 489),
    (_marina_p(4 * 0.116, 0.1, RAND4), CLIENTS, None, 691),  # independent parts: three times as long as PermK's
]


@pytest.mark.parametrize(
    ("algorithm", "clients", "participants", "rounds"),
    [
        *FAST,
        *(pytest.param(*case, marks=pytest.mark.thorough) for case in THOROUGH),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
    ],
    ids=lambda value: type(value).__name__.lower(),
)
def test_reaches_the_optimum(algorithm: Algorithm, clients: Any, participants: int | None, rounds: int) -> None:
    """In as many rounds as a program in float64, within a half."""
    found = Run(algorithm, clients, participants).rounds_to(1e-8, 2 * rounds)
    assert (found or 10**6) <= 1.5 * rounds


def test_others_stop_short() -> None:
    assert 1e-2 < Run(FedAvg(TEN, STEP, DENSE, DENSE, "uniform"), CLIENTS).floor(200) < 3e-2
    plain = FedAvg(GD(lr=0.28), STEP, SEEDLESS, DENSE, "uniform")
    assert Run(plain, CLIENTS).floor(300) > 0.1
    one_minimum = replace(CLIENTS, centres=CLIENTS.centres[:1].expand(N, -1))
    assert Run(plain, one_minimum).floor(400) < 1e-4, "gradients that all vanish there may be compressed"


def _there(algorithm: Algorithm, run: Run) -> Any:
    """The method's state at x*."""
    best = CLIENTS.optimum
    state, gradients = run.init(best), CLIENTS.gradients(best).float()
    if isinstance(algorithm, LoCoDL):
        pull = (MU / 2 * best).float()
        return replace(state, duals=gradients - pull, dual=pull)
    names = {Tamuna: ("duals",), GradientEstimate: ("gradients", "estimates")}.get(type(algorithm), ("controls",))
    return replace(state, **dict.fromkeys(names, gradients))


@looped(
    "algorithm, participants, clients",
    [
        (Scaffold(TEN, STEP, RAND4), None, CLIENTS),
        (Scaffold(TEN, STEP, TOP4, "I"), 3, UNEQUAL),
        (Scallion(TEN, STEP, RAND4, DENSE), 3, UNEQUAL),
        (Scallion(Sgd(lr=0.3, steps=1), STEP, TOP4, TOP10_DOWN), None, CLIENTS),
        (FedDyn(TEN, DENSE), 3, CLIENTS),
        (FedDyn(TEN, TOP4), None, CLIENTS),
        (BALANCED, None, CLIENTS),
        (Tamuna(FAR, 3, 0.3), 4, CLIENTS),
        (DASHA, None, CLIENTS),
        (MARINA, None, CLIENTS),
    ],
)
def test_nothing_moves_at_the_fixed_point(algorithm: Algorithm, participants: int | None, clients: Any) -> None:
    for seed in (1, 2):
        run = Run(algorithm, clients, participants, seed)
        state = start = _there(algorithm, run)
        for index in range(1, 4):  # MARINA's first round is whole
            state = run.once(state, index)
            for name in vars(start):
                here, there = getattr(state, name), getattr(start, name)
                if name in ("theta", "models", "controls", "control", "duals", "estimates"):
                    assert torch.allclose(here, there, rtol=0, atol=5e-5), name


FEDAVG, DESCENT = FedAvg(TEN, STEP, DENSE, DENSE, "uniform"), FedAvg(GD(lr=0.5), STEP, DENSE, DENSE, "uniform")
SAME = [
    (Scaffold(TEN, STEP, DENSE), FEDAVG, 1, None, CLIENTS),
    (Scaffold(ONCE, STEP, DENSE), FedAvg(ONCE, STEP, DENSE, DENSE, "uniform"), 8, None, CLIENTS),
    (Scaffold(TEN, STEP, DENSE), FEDAVG, 6, None, ALIKE),
    (Scallion(TEN, STEP, DENSE, DENSE), FEDAVG, 6, None, ALIKE),
    (Scallion(TEN, ServerSgd(0.7), DENSE, DENSE), Scaffold(TEN, ServerSgd(0.7), DENSE), 8, 3, CLIENTS),
    (Scallion(TEN, STEP, DENSE, DENSE, sends="mean_update"), Scaffold(TEN, STEP, DENSE), 8, 3, CLIENTS),
    (GradientEstimate(GD(lr=0.5), STEP, DENSE), DESCENT, 6, None, CLIENTS),
    (GradientEstimate(GD(lr=0.5), STEP, DENSE, "marina"), DESCENT, 6, None, CLIENTS),
    (LoCoDL(GD(lr=1.0), DENSE, 1.0, rho=1.0, chi=1.0, convexity=MU), DESCENT, 6, None, CLIENTS),  # x_i = y: half a step
    (Tamuna(GD(lr=0.5), N, 1.0), DESCENT, 6, None, CLIENTS),
    (_marina_p(0.5, 1.0), DESCENT, 6, None, CLIENTS),
]


@looped("algorithm, plain, rounds, participants, clients", SAME)
def test_without_what_makes_it_differ_it_is_a_simpler_method(
    algorithm: Algorithm, plain: Algorithm, rounds: int, participants: int | None, clients: Any
) -> None:
    left, right = (Run(each, clients, participants) for each in (algorithm, plain))
    for here, there in zip(left.states(rounds), right.states(rounds), strict=True):
        assert torch.allclose(here.theta, there.theta, rtol=0, atol=1e-5)
    assert here.theta.norm() > 0.1


ENTRY = 32 + 6
"""A value and its place among 40."""
BITS = [
    (Scaffold(TEN, STEP, DENSE), 3, 3 * 64 * D, 3, 64 * D),
    (Scaffold(TEN, STEP, TOP4, "I"), 3, 3 * 8 * ENTRY, 3, 64 * D),
    (Scallion(TEN, STEP, TOP4, DENSE), 3, 3 * 4 * ENTRY, 3, 64 * D),
    (Scallion(replace(TEN, steps=None), STEP, TOP4, DENSE), 3, 3 * (4 * ENTRY + 32), 3, 64 * D),
    (Scallion(TEN, STEP, TOP4, TOP10_DOWN), 3, 3 * 4 * ENTRY, N, 10 * ENTRY + 32),  # the mean goes to everybody
    (Scallion(TEN, STEP, TOP4, Compressor(Dense("float16"), ErrorFeedback())), 3, 3 * 4 * ENTRY, N, 16 * D + 32),
    (FedDyn(TEN, TOP4), 3, 3 * 4 * ENTRY, 3, 32 * D),
    (BALANCED, None, N * 128, N, 32 * D),
    (replace(BALANCED, relay=True), None, N * 128, N - 1, N * 128),
]


@looped("algorithm, participants, up, receivers, down", BITS)
def test_bits_of_a_round(algorithm: Algorithm, participants: int | None, up: int, receivers: int, down: int) -> None:
    """All that goes up, and a broadcast to so many."""
    run = Run(algorithm, CLIENTS, participants, link=WireLink)
    list(run.states(2))
    assert run.bits() == {"uplink": up, "downlink": receivers * down, "broadcast": down}


def test_a_mask_is_answered_by_its_own_entries() -> None:
    """TAMUNA's model goes to the participants, and then to each of them the entries that it sent."""
    run = Run(Tamuna(FAR, 2, 0.3), CLIENTS, 4, link=WireLink)
    list(run.states(2))
    entries = 2 * D * 32
    assert run.bits() == {"uplink": entries, "downlink": 4 * 32 * D + entries, "broadcast": 32 * D + entries}


@looped("algorithm", [Scaffold(TEN, STEP, DENSE), FedDyn(TEN, DENSE), BALANCED, Tamuna(FAR, 2, 0.3)])
def test_that_control_variates_cancel_out_is_logged_where_all_take_part(algorithm: Algorithm) -> None:
    run = Run(algorithm, CLIENTS)
    list(run.states(3))
    assert float(run.metrics["control/sum"]) < 1e-4
    if not algorithm.full_participation:
        run = Run(algorithm, CLIENTS, 3)
        list(run.states(1))
        assert "control/sum" not in run.metrics
