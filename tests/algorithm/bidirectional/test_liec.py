"""LIEC: nothing is lost, models are equal after an averaging and differ before; periods, exact bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.quantisers.qsgd import QSGD
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.server.adam import Adam as ServerAdam
from fedcomp.server.sgd import Sgd as ServerSgd
from tests.algorithm import quadratic
from tests.algorithm.quadratic import STEP, D, N, Quadratics
from tests.looped import looped

CLIENTS, ETA = Quadratics.of(), 0.3
DENSE, SIGN = Compressor(Dense()), Compressor(Sign(granularity="model"))


@looped("up", [SIGN, Compressor(TopK(0.1)), Compressor(QSGD(1))])
@looped("fused", [False, True])
@looped("period", [1, 3, 100])
def test_nothing_is_lost_and_models_are_equal_after_an_averaging(up, fused: bool, period: int) -> None:
    """mean x_i - eta E (g = -u) moves by eta mean u_i in every round, averagings included."""
    algorithm = LIEC(STEP, ServerSgd(ETA), up, SIGN, period, fused)
    for index, (before, after, _) in enumerate(quadratic.rounds(algorithm, CLIENTS, 8)):
        meant = [state.theta.mean(0) + ETA * state.downlink.sender[0] for state in (before, after)]
        assert torch.allclose(meant[1] - meant[0], ETA * CLIENTS.change(before.theta).mean(0), atol=1e-5)
        averaged = index % period == period - 1
        assert torch.equal(after.theta, after.theta[:1].expand(N, -1)) == averaged
        assert bool(after.downlink.sender.any()) != averaged


def test_every_client_corrects_itself_at_once() -> None:
    """x_i - x_j moves by eta (r_i - r_j): of what client i meant, only what the others were told is missing."""
    for before, after, _ in quadratic.rounds(LIEC(STEP, ServerSgd(ETA), SIGN, SIGN), CLIENTS, 5):
        change = CLIENTS.change(before.theta)
        left = change - change.abs().mean(1, keepdim=True) * change.sign()
        moved = after.theta - before.theta
        assert torch.allclose(moved - moved[:1], ETA * (left - left[:1]), atol=1e-5)


def test_fused_averaging_gives_the_same_model_for_half_the_bits() -> None:
    both = [
        list(quadratic.rounds(LIEC(STEP, ServerSgd(ETA), SIGN, SIGN, 3, fused), CLIENTS, 6)) for fused in (False, True)
    ]
    for index, ((_, apart, bits), (_, fused, fewer)) in enumerate(zip(*both, strict=True)):
        assert torch.allclose(apart.theta, fused.theta, atol=1e-5)
        factor = 2 if index % 3 == 2 else 1
        assert bits == {link: factor * amount for link, amount in fewer.items()}


def test_lossless_it_is_fedavg() -> None:
    plain = quadratic.last(FedAvg(STEP, ServerSgd(ETA), DENSE, DENSE, "uniform"), CLIENTS, 6)
    for up, down in ((DENSE, DENSE), (Compressor(TopK(1.0)), Compressor(TopK(1.0)))):
        state = quadratic.last(LIEC(STEP, ServerSgd(ETA), up, down, 4), CLIENTS, 6)
        assert torch.allclose(state.theta, plain.theta.expand(N, -1), atol=1e-6)
        assert not state.downlink.sender.any()


def test_bits_over_a_period() -> None:
    """49 signs and two dense vectors each way in 50 rounds: 113 bits a parameter, and 49 scales."""
    total = 0
    for index, (_, _, bits) in enumerate(quadratic.rounds(LIEC(STEP, ServerSgd(), SIGN, SIGN), CLIENTS, 50)):
        each = 64 * D if index == 49 else D + 32
        assert bits == {"uplink": N * each, "downlink": N * each, "broadcast": each}
        total += each
    assert total == 113 * D + 49 * 32


def test_without_gradients_nothing_moves() -> None:
    state = quadratic.last(LIEC(STEP, ServerSgd(), SIGN, SIGN, 3), replace(CLIENTS, centres=torch.zeros(N, D)), 4)
    assert not state.theta.any()
    assert not state.downlink.sender.any()


def test_the_average_model_is_deployed() -> None:
    algorithm = LIEC(STEP, ServerSgd(ETA), SIGN, SIGN)
    state = quadratic.last(algorithm, CLIENTS, 3)
    assert torch.equal(algorithm.evaluation_models(state, None)["test"].theta[0], state.theta.mean(0))  # type: ignore[arg-type]


WRONG = [
    ({"period": -1}, "algorithm.period=-1 must be a whole number, 1 or more"),
    ({"server": ServerAdam()}, "server=adam makes no sense where clients step on their own"),
    ({"uplink": replace(SIGN, feedback=ErrorFeedback())}, "compressor.feedback must be none: the algorithm itself"),
    ({"uplink": Compressor.of(TopK(0.1), predictor="ef21")}, "compressor.predictor must be none"),
    ({"downlink": Compressor.of(TopK(0.1), predictor="ef21")}, "downlink.predictor must be none"),
    ({"downlink": Compressor(RandK(0.1))}, "^downlink: the algorithm remembers what RandK leaves out"),
]


@looped("options, message", WRONG)
def test_errors(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LIEC(**{"client": STEP, "server": ServerSgd(), "uplink": SIGN, "downlink": SIGN} | options)


def test_its_parts_stay_as_they_were_given() -> None:
    algorithm = LIEC(STEP, ServerSgd(), SIGN, SIGN)
    assert algorithm.downlink is SIGN
    assert quadratic.last(algorithm, CLIENTS, 2).downlink.sender.any()
