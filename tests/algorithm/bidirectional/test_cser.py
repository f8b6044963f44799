"""CSER: the mean model moves as without compression, models differ by what was left out; resets, exact bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.estimators.spatial import Spatial
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.mrc.mrc_sign import MRCSign
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.memory.check import state_bytes
from fedcomp.server.adam import Adam as ServerAdam
from fedcomp.server.sgd import Sgd as ServerSgd
from tests.algorithm import quadratic
from tests.algorithm.quadratic import STEP, D, N, Quadratics
from tests.conformance import world
from tests.looped import looped

CLIENTS, ETA = Quadratics.of(), 0.3
DENSE, SIGN = Compressor(Dense()), Compressor(Sign(granularity="model"))
ALL_SENT = Compressor(TopK(1.0))
UPLINKS = [SIGN, Compressor(TopK(0.1)), Compressor(RandK(0.1, scale="none"))]


@looped("up", UPLINKS)
@looped("period", [1, 3, 100])
def test_the_mean_moves_as_without_compression_and_models_differ_by_what_was_left_out(up, period: int) -> None:
    algorithm = CSER(STEP, ServerSgd(ETA), up, DENSE, period)
    for before, after, _ in quadratic.rounds(algorithm, CLIENTS, 8):
        change = CLIENTS.change(before.theta).mean(0)
        assert torch.allclose(after.theta.mean(0) - before.theta.mean(0), ETA * change, atol=1e-6)
        apart = after.theta - after.theta.mean(0)
        assert torch.allclose(apart, ETA * (after.error - after.error.mean(0)), atol=1e-5)
        assert apart.norm() > 0.1


def test_what_was_sent_and_what_is_remembered_is_what_was_meant() -> None:
    """Over a period without a reset a_i sums up what messages left out; a reset leaves what its message left out."""
    meant = torch.zeros(N, D)
    for index, (before, after, _) in enumerate(quadratic.rounds(CSER(STEP, ServerSgd(), SIGN, DENSE, 4), CLIENTS, 8)):
        change = CLIENTS.change(before.theta)
        meant = before.error + change - _signed(change)
        if index % 4 == 3:
            meant = meant - _signed(meant)
        assert torch.allclose(after.error, meant, atol=1e-5)


def _signed(x: torch.Tensor) -> torch.Tensor:
    return x.abs().mean(1, keepdim=True) * x.sign()


def test_resets_bring_models_together_and_a_lossless_one_makes_them_equal() -> None:
    """A message that is dense only in the round of the reset, so that there is something left to reset before."""
    states = [after for _, after, _ in quadratic.rounds(CSER(STEP, ServerSgd(ETA), SIGN, DENSE, 3), CLIENTS, 3)]
    spread = [float((state.theta - state.theta.mean(0)).norm()) for state in states]
    algorithm = CSER(STEP, ServerSgd(ETA), ALL_SENT, DENSE, 3)
    assert spread[0] > 0.1
    state = states[1]
    without = quadratic.once(CSER(STEP, ServerSgd(ETA), SIGN, DENSE, 100), CLIENTS, state, 2)
    assert spread[2] < 0.9 * float((without.theta - without.theta.mean(0)).norm())
    reset = quadratic.once(algorithm, CLIENTS, state, 2)
    assert torch.allclose(reset.theta, reset.theta.mean(0).expand(N, -1), atol=1e-6)
    assert not reset.error.any()
    unset = quadratic.once(algorithm, CLIENTS, state, 3)
    assert float((unset.theta - unset.theta.mean(0)).norm()) > 0.1


@pytest.mark.parametrize("up", [DENSE, ALL_SENT])
def test_lossless_it_is_fedavg(up) -> None:
    plain = quadratic.last(FedAvg(STEP, ServerSgd(ETA), DENSE, DENSE, "uniform"), CLIENTS, 6)
    state = quadratic.last(CSER(STEP, ServerSgd(ETA), up, DENSE, 2), CLIENTS, 6)
    assert torch.allclose(state.theta, plain.theta.expand(N, -1), atol=1e-6)
    assert not state.error.any()


def test_bits_over_a_period() -> None:
    """51 signs up and 51 dense vectors down in 50 rounds, each link exact in every round."""
    up, down = 0, 0
    for index, (_, _, bits) in enumerate(quadratic.rounds(CSER(STEP, ServerSgd(), SIGN, DENSE), CLIENTS, 50)):
        times = 2 if index == 49 else 1
        assert bits == {"uplink": times * N * (D + 32), "downlink": times * N * 32 * D, "broadcast": times * 32 * D}
        up, down = up + bits["uplink"], down + bits["downlink"]
    assert up == N * 51 * (D + 32)
    assert down == N * 1632 * D


def test_a_compressed_way_down_remembers_what_it_left_out() -> None:
    """With error feedback on the downlink, mean x_i - eta E (g = -u) moves by eta mean u_i, resets included."""
    algorithm = CSER(STEP, ServerSgd(ETA), SIGN, replace(SIGN, feedback=ErrorFeedback()), 3)
    for index, (before, after, bits) in enumerate(quadratic.rounds(algorithm, CLIENTS, 7)):
        meant = [state.theta.mean(0) + ETA * state.downlink.sender[0] for state in (before, after)]
        assert torch.allclose(meant[1] - meant[0], ETA * CLIENTS.change(before.theta).mean(0), atol=1e-5)
        assert bits["broadcast"] == (D + 32) * (2 if index % 3 == 2 else 1)


def test_without_gradients_nothing_moves() -> None:
    state = quadratic.last(CSER(STEP, ServerSgd(), SIGN, DENSE, 2), replace(CLIENTS, centres=torch.zeros(N, D)), 4)
    assert not state.theta.any()
    assert not state.error.any()


def test_the_average_model_is_deployed() -> None:
    algorithm = CSER(STEP, ServerSgd(ETA), SIGN, DENSE)
    state = quadratic.last(algorithm, CLIENTS, 3)
    assert torch.equal(algorithm.evaluation_models(state, None)["test"].theta[0], state.theta.mean(0))  # type: ignore[arg-type]


@pytest.mark.parametrize(("algorithm", "rows"), [(CSER, 2), (LIEC, 1)])
def test_the_clients_models_count_as_memory_before_the_first_round(algorithm, rows: int) -> None:
    """CSER holds a model and an error for each client, LIEC a model; the server's error is one vector more."""
    sim = world.simulation(algorithm(STEP, ServerSgd(), SIGN, SIGN), participation=world.FULL)
    parts = state_bytes(sim.algorithm, sim.model, 1000)
    server = 4 * sim.model.dim * (algorithm is LIEC)
    assert sum(parts.values()) == 4 * sim.model.dim * rows * 1000 + server


WRONG = [
    ({"period": 0}, "algorithm.period=0 must be a whole number, 1 or more"),
    ({"server": ServerSgd(1.0, 0.5)}, "server=sgd with momentum makes no sense where clients step on their own"),
    ({"server": ServerAdam()}, "server=adam makes no sense where clients step on their own"),
    ({"uplink": replace(SIGN, feedback=ErrorFeedback())}, "compressor.feedback must be none: the algorithm itself"),
    ({"uplink": Compressor(RandK(0.1))}, "^compressor: the algorithm remembers what RandK leaves out"),
    ({"uplink": Compressor.of(TopK(0.1), predictor="aggregate")}, "compressor.predictor must be none"),
    ({"downlink": Compressor.of(TopK(0.1), predictor="ef21")}, "downlink.predictor must be none"),
    ({"uplink": Compressor(RandK(0.1), estimator=Spatial("max"))}, "compressor.estimator must be weighted_sum"),
    ({"downlink": Compressor(RandK(0.1), estimator=Spatial("max"))}, "downlink.estimator must be weighted_sum"),
]


@looped("options, message", WRONG)
def test_errors(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CSER(**{"client": STEP, "server": ServerSgd(), "uplink": SIGN, "downlink": DENSE} | options)


def test_errors_that_would_grow_are_refused_before_the_first_round() -> None:
    with pytest.raises(ValueError, match="compressor.scale=mean_abs makes no sense with an error memory"):
        quadratic.init(CSER(STEP, ServerSgd(), Compressor(MRCSign(scale="mean_abs")), DENSE), CLIENTS)


@pytest.mark.parametrize("algorithm", ["cser", "liec"])
def test_less_than_everybody_is_refused_before_the_first_round(fedcomp, capsys, algorithm: str) -> None:
    some = "participation=uniform", "participation.num_participants=5"
    assert fedcomp(f"algorithm={algorithm}", "rounds=1", "num_clients=6", *some) == 1
    shown = capsys.readouterr().err.strip()
    wanted = f"algorithm={algorithm} needs every client in every round, but participation=uniform leaves some out"
    assert wanted in shown
    assert "\n" not in shown
    everybody = "participation=uniform", "participation.num_participants=6"
    assert fedcomp(f"algorithm={algorithm}", "rounds=1", "num_clients=6", "pictures=false", *everybody) == 0
