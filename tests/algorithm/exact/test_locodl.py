"""LoCoDL: its constants, local steps, wrong input; its rounds are in `test_plain_rounds.py`."""

import math
from dataclasses import replace

import pytest
import torch

from fedcomp.algorithm.exact.local_steps import geometric
from fedcomp.algorithm.exact.locodl import LoCoDL
from fedcomp.random.keys import Key
from tests.algorithm.heterogeneous import N, Run, problem
from tests.parts import GD, Adam, Compressor, Eden, ErrorFeedback, RandK, Sgd, TopK
from tests.refused import refused

RAND4 = Compressor(RandK(k=4, seed_cost="derived"))
CLIENTS, MU = problem(0), 0.02
BALANCED = LoCoDL(GD(lr=1.0), RAND4, None, convexity=MU)


def test_the_balanced_probability() -> None:
    omega, of_mean, gamma = 9.0, 9 / 7, 1.0
    expected = math.sqrt((1 + 2 * omega) * (1 + of_mean) * (1 - (1 - gamma * MU / 2) ** 2))
    found = BALANCED.constants(CLIENTS.layers, N)
    assert found.p == pytest.approx(expected)
    assert (found.rho, found.chi) == pytest.approx((1 / (1 + of_mean),) * 2)
    assert found.dual_step == pytest.approx(expected * found.chi / (gamma * 19))
    decayed = LoCoDL(GD(lr=1.0, weight_decay=MU), RAND4, None)
    assert decayed.constants(CLIENTS.layers, N).p == pytest.approx(expected)


def test_the_number_of_local_steps_is_geometric() -> None:
    draws = torch.tensor([geometric(0.25, Key(("steps", index))) for index in range(4000)], dtype=torch.float64)
    assert int(draws.min()) == 1
    assert abs(float(draws.mean()) - 4) < 4 * (12 / 4000) ** 0.5
    assert abs(float((draws == 1).double().mean()) - 0.25) < 4 * (0.1875 / 4000) ** 0.5
    assert geometric(1.0, Key()) == 1


def test_constants_outside_of_the_theory_are_said(caplog) -> None:
    with caplog.at_level("WARNING", logger="fedcomp"):
        replace(BALANCED, rho=1.0, chi=0.99).constants(CLIENTS.layers, N)
        assert "LoCoDL with rho=1, chi=0.99 and omega_av=1.29 is outside of its theory" in caplog.text
        caplog.clear()
        BALANCED.constants(CLIENTS.layers, N)
    assert not caplog.text


test_wrong_input = refused(
    [
        (lambda: LoCoDL(Adam(lr=0.1), RAND4), "sets its own number of plain gradient steps, but client=adam was given"),
        (lambda: LoCoDL(Sgd(lr=0.1, momentum=0.9), RAND4), "but client.momentum=0.9 was given"),
        (lambda: LoCoDL(Sgd(lr=0.1, epochs=3), RAND4), "but client.epochs=3 was given"),
        (lambda: LoCoDL(GD(lr=0.1, steps=3), RAND4), "but client.steps=3 was given"),
        (lambda: LoCoDL(GD(lr=0.1, clip_norm=1.0), RAND4), "but client.clip_norm=1.0 was given"),
        (lambda: LoCoDL(GD(lr=0.1, proximal=1.0), RAND4), "but client.proximal=1.0 was given"),
        (lambda: LoCoDL(GD(lr=0.1, schedule="cosine"), RAND4), "client.schedule=cosine changes the step"),
        (lambda: LoCoDL(GD(lr=0.1), Compressor(TopK())), "LoCoDL needs an unbiased compressor, not TopK as configured"),
        (lambda: LoCoDL(GD(lr=0.1), Compressor(TopK(), ErrorFeedback())), "compressor.feedback must be none: LoCoDL"),
        (lambda: LoCoDL(GD(lr=0.1), RAND4, 0.0), "algorithm.p=0.0 must be a number in"),
        (lambda: LoCoDL(GD(lr=0.1), RAND4, None), "algorithm.p=null is computed from algorithm.convexity"),
        (lambda: LoCoDL(GD(lr=2.0), RAND4, smoothness=1.0), r"client.lr=2.0 must be below 2 / algorithm.smoothness ="),
        (lambda: LoCoDL(GD(lr=0.1), RAND4, smoothness=1.0, convexity=2.0), "algorithm.convexity=2.0 is above"),
        (lambda: LoCoDL(GD(lr=0.1), RAND4, convexity=0.0), "algorithm.convexity=0.0 must be a positive number"),
        (lambda: LoCoDL(GD(lr=1.9), RAND4, schedule="period", smoothness=1.0), "schedule=period needs client.lr of"),
        (lambda: Run(LoCoDL(GD(lr=0.1), Compressor(Eden())), CLIENTS).init(), "omega of Eden has no closed form:"),
    ]
)
