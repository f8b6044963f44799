"""CSER and LIEC, whose clients have models of their own: resets, averagings, what is remembered, exact bits, refusals.

What they have in common with the methods of one model is in `test_error_memories.py`.
"""

from dataclasses import replace

import torch

from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.memory.check import state_bytes
from tests.algorithm.heterogeneous import STEP, D, N, Run, problem
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, Compressor, ErrorFeedback, MRCSign, RandK, ServerAdam, ServerSgd, Sign, Spatial, TopK
from tests.refused import refused

CLIENTS, ETA = problem(), 0.3
SERVER = ServerSgd(ETA)
SIGN, ALL_SENT = Compressor(Sign(granularity="model")), Compressor(TopK(1.0))


def test_what_was_sent_and_what_is_remembered_is_what_was_meant() -> None:
    """a_i sums up what messages left out, a reset leaves what its message left out; models differ by what is owed."""
    for index, (before, after, _) in enumerate(Run(CSER(STEP, SERVER, SIGN, DENSE, 4), CLIENTS).rounds(8)):
        change = CLIENTS.changes(before.theta)
        meant = before.error + change - _signed(change)
        if index % 4 == 3:
            meant = meant - _signed(meant)
        assert torch.allclose(after.error, meant, atol=1e-5)
        apart, owed = (rows - rows.mean(0) for rows in (after.theta, after.error))
        assert torch.allclose(apart, ETA * owed, atol=1e-5)


def _signed(x: torch.Tensor) -> torch.Tensor:
    return x.abs().mean(1, keepdim=True) * x.sign()


def test_resets_bring_models_together_and_a_lossless_one_makes_them_equal() -> None:
    """A message that is dense only in the round of the reset, so that there is something left to reset before."""
    states = [after for _, after, _ in Run(CSER(STEP, SERVER, SIGN, DENSE, 3), CLIENTS).rounds(3)]
    spread = [float((state.theta - state.theta.mean(0)).norm()) for state in states]
    algorithm = CSER(STEP, SERVER, ALL_SENT, DENSE, 3)
    assert spread[0] > 0.1
    state = states[1]
    without = Run(CSER(STEP, SERVER, SIGN, DENSE, 100), CLIENTS).once(state, 2)
    assert spread[2] < 0.9 * float((without.theta - without.theta.mean(0)).norm())
    reset = Run(algorithm, CLIENTS).once(state, 2)
    assert torch.allclose(reset.theta, reset.theta.mean(0).expand(N, -1), atol=1e-6)
    assert not reset.error.any()
    unset = Run(algorithm, CLIENTS).once(state, 3)
    assert float((unset.theta - unset.theta.mean(0)).norm()) > 0.1


@looped("algorithm, rows", [(CSER, 2), (LIEC, 1)])
def test_the_clients_models_count_as_memory_before_the_first_round(algorithm, rows: int) -> None:
    """CSER holds a model and an error for each client, LIEC a model; the server's error is one vector more."""
    sim = world.simulation(algorithm(STEP, ServerSgd(), SIGN, SIGN), participation=world.FULL)
    parts = state_bytes(sim, 1000)
    server = 4 * sim.model.dim * (algorithm is LIEC)
    assert sum(parts.values()) == 4 * sim.model.dim * rows * 1000 + server


@looped("period, fused", [(1, False), (3, False), (3, True), (100, True)])
def test_models_are_equal_after_an_averaging(period: int, fused: bool) -> None:
    algorithm = LIEC(STEP, SERVER, SIGN, SIGN, period, fused)
    for index, (_, after, _) in enumerate(Run(algorithm, CLIENTS).rounds(8)):
        averaged = index % period == period - 1
        assert torch.equal(after.theta, after.theta[:1].expand(N, -1)) == averaged
        assert bool(after.downlink.sender.any()) != averaged


def test_every_client_of_liec_corrects_itself_at_once() -> None:
    """x_i - x_j moves by eta (r_i - r_j): of what client i meant, only what the others were told is missing."""
    for before, after, _ in Run(LIEC(STEP, SERVER, SIGN, SIGN), CLIENTS).rounds(5):
        change = CLIENTS.changes(before.theta)
        left = change - change.abs().mean(1, keepdim=True) * change.sign()
        moved = after.theta - before.theta
        assert torch.allclose(moved - moved[:1], ETA * (left - left[:1]), atol=1e-5)


ONE = D + 32
"""Bits of a scaled sign of the whole model."""
BITS = [
    (CSER(STEP, SERVER, SIGN, DENSE), (ONE, 32 * D), (2 * ONE, 64 * D)),
    (LIEC(STEP, SERVER, SIGN, SIGN), (ONE, ONE), (64 * D, 64 * D)),
    (LIEC(STEP, SERVER, SIGN, SIGN, 3, True), (ONE, ONE), (32 * D, 32 * D)),
]


@looped("algorithm, usual, last", BITS)
def test_bits_up_and_down_of_every_round_of_a_period(algorithm, usual, last) -> None:
    """Over 50 rounds CSER sends 51 signs up and 1,632 D down, LIEC 113 D and 49 scales each way."""
    for index, (*_, bits) in enumerate(Run(algorithm, CLIENTS).rounds(algorithm.period)):
        up, down = last if index == algorithm.period - 1 else usual
        assert bits == {"uplink": N * up, "downlink": N * down, "broadcast": down}


test_wrong_input = refused(
    [
        ({"server": ServerSgd(1.0, 0.5)}, "server=sgd with momentum makes no sense where clients step on their own"),
        ({"server": ServerAdam()}, "server=adam makes no sense where clients step on their own"),
        ({"method": LIEC, "server": ServerAdam()}, "server=adam makes no sense where clients step on their own"),
        ({"uplink": replace(SIGN, feedback=ErrorFeedback())}, "compressor.feedback must be none: the algorithm itself"),
        ({"uplink": Compressor(RandK(0.1))}, "^compressor: the algorithm remembers what RandK leaves out"),
        ({"method": LIEC, "downlink": Compressor(RandK(0.1))}, "^downlink: the algorithm remembers what RandK leaves"),
        ({"uplink": Compressor.of(TopK(0.1), predictor="aggregate")}, "compressor.predictor must be none"),
        ({"downlink": Compressor.of(TopK(0.1), predictor="ef21")}, "downlink.predictor must be none"),
        ({"uplink": Compressor(RandK(0.1), estimator=Spatial("max"))}, "compressor.estimator must be weighted_sum"),
        ({"downlink": Compressor(RandK(0.1), estimator=Spatial("max"))}, "downlink.estimator must be weighted_sum"),
        ({"uplink": Compressor(MRCSign(scale="mean_abs"))}, "compressor.scale=mean_abs makes no sense with an error"),
    ],
    lambda method=CSER, server=SERVER, uplink=SIGN, downlink=SIGN: Run(
        method(STEP, server, uplink, downlink), CLIENTS
    ).init(),
)
