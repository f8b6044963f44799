"""Methods that reach the exact optimum of clients that differ: how soon; bits.

Each is held to its equations in `heterogeneity/test_plain_rounds.py` and `exact/test_plain_rounds.py`, round by round.
"""

from dataclasses import replace
from typing import Any

import pytest

from fedcomp.algorithm.bidirectional.m3 import M3
from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.exact.gradient_estimate import GradientEstimate
from fedcomp.algorithm.exact.locodl import LoCoDL
from fedcomp.algorithm.exact.tamuna import Tamuna
from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.algorithm.heterogeneity.scallion import Scallion
from tests.algorithm.heterogeneous import D, N, Run, problem
from tests.looped import looped
from tests.parts import DENSE, GD, Compressor, Dense, ErrorFeedback, PermK, RandK, ServerSgd, Sgd, TopK

STEP, CLIENTS, MU = ServerSgd(), problem(0), 0.02
UNEQUAL = replace(CLIENTS, steps=(14, 12, 10, 8, 6, 4, 2))
TEN, SLOWLY = Sgd(lr=0.1, steps=10), Sgd(lr=0.02, steps=10)
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
    (FedDyn(TEN, DENSE), CLIENTS, None, 118),
    (replace(BALANCED, uplink=DENSE), CLIENTS, None, 75),
    (Tamuna(FAR, 7, None, **CONSTANTS), CLIENTS, None, 81),
    (_marina_p(), CLIENTS, None, 233),
]
THOROUGH = [
    (Scaffold(TEN, STEP, DENSE), CLIENTS, None, 324),
    (Scaffold(TEN, STEP, DENSE), CLIENTS, 3, 324),
    (Scallion(TEN, STEP, RAND4, DENSE), CLIENTS, None, 330),
    (FedDyn(TEN, DENSE), CLIENTS, 3, 200),
    (FedDyn(TEN, TOP4, 1.0), CLIENTS, None, 300),
    (DASHA, CLIENTS, None, 485),
    (MARINA, CLIENTS, None, 363),
    (LoCoDL(GD(lr=2.0), SEEDLESS, 1.0, convexity=MU), CLIENTS, None, 558),
    (Tamuna(FAR, 2, 0.265), CLIENTS, 4, 521),  # a client that learns of its round too late stops at 0.33
]
SLOW = [
    (Scallion(SLOWLY, STEP, RAND4, TOP10_DOWN), CLIENTS, None, 1668),
    (Scallion(TEN, STEP, RAND4, DENSE), UNEQUAL, None, 900),
    (FedDyn(TEN, SHRUNK4, 1.0), CLIENTS, None, 356),
    (replace(MARINA, uplink=PERMK), CLIENTS, None, 363),
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


ENTRY = 32 + 6
"""A value and its place among 40."""
BITS = [
    (Scaffold(TEN, STEP, TOP4, "I"), 3, 3 * 8 * ENTRY, 3, 64 * D),
    (Scallion(replace(TEN, steps=None), STEP, TOP4, DENSE), 3, 3 * (4 * ENTRY + 32), 3, 64 * D),
    (Scallion(TEN, STEP, TOP4, TOP10_DOWN), 3, 3 * 4 * ENTRY, N, 10 * ENTRY + 32),  # the mean goes to everybody
    (Scallion(TEN, STEP, TOP4, Compressor(Dense("float16"), ErrorFeedback())), 3, 3 * 4 * ENTRY, N, 16 * D + 32),
    (FedDyn(TEN, TOP4), 3, 3 * 4 * ENTRY, 3, 32 * D),
    (replace(BALANCED, relay=True), None, N * 128, N - 1, N * 128),
]


@looped("algorithm, participants, up, receivers, down", BITS)
def test_bits_of_a_round(algorithm: Algorithm, participants: int | None, up: int, receivers: int, down: int) -> None:
    """All that goes up, and a broadcast to so many."""
    run = Run(algorithm, CLIENTS, participants)
    run.last(2)
    assert run.bits() == {"uplink": up, "downlink": receivers * down, "broadcast": down}


@looped("algorithm", [Scaffold(TEN, STEP, DENSE), FedDyn(TEN, DENSE), BALANCED, Tamuna(FAR, 2, 0.3)])
def test_that_control_variates_cancel_out_is_logged_where_all_take_part(algorithm: Algorithm) -> None:
    run, some = Run(algorithm, CLIENTS), Run(algorithm, CLIENTS, 3)
    run.last(3)
    assert float(run.metrics["control/sum"]) < 1e-4
    if not algorithm.full_participation:
        some.last(1)
        assert "control/sum" not in some.metrics
