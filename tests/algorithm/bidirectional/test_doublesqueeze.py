"""DoubleSqueeze: nothing is lost at either end, in the clients' units; lossless it is FedAvg; exact bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedcomp.algorithm.bidirectional.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.server.sgd import Sgd as ServerSgd
from tests.algorithm import quadratic
from tests.algorithm.quadratic import STEP, D, N, Quadratics
from tests.looped import looped

CLIENTS = Quadratics.of()
DENSE, SIGN, TOPK = Compressor(Dense()), Compressor(Sign(granularity="model")), Compressor(TopK(0.1))


@looped("up, down", [(SIGN, SIGN), (TOPK, SIGN), (SIGN, Compressor(Sign("fixed", 0.3)))])
def test_what_was_sent_and_what_is_remembered_is_what_was_meant(up, down) -> None:
    """x - eta (mean e_i + E), with g = -u, moves by eta mean u_i a round: memories are not multiplied by eta."""
    eta = 0.3
    for before, after, _ in quadratic.rounds(DoubleSqueeze(STEP, ServerSgd(eta), up, down), CLIENTS, 8):
        meant = [
            state.theta + eta * (state.uplink.sender.mean(0) + state.downlink.sender[0]) for state in (before, after)
        ]
        change = CLIENTS.change(before.theta).mean(0)
        assert torch.allclose(meant[1] - meant[0], eta * change, atol=1e-6)
        assert not torch.allclose(after.theta - before.theta, eta * change, atol=1e-2)


def test_lossless_it_is_fedavg() -> None:
    server = ServerSgd(0.3, 0.5)
    squeezed = quadratic.last(DoubleSqueeze(STEP, server, DENSE, DENSE), CLIENTS, 6)
    plain = quadratic.last(FedAvg(STEP, server, DENSE, DENSE, "uniform"), CLIENTS, 6)
    assert torch.equal(squeezed.theta, plain.theta)
    assert not squeezed.uplink.sender.any()


def test_it_is_fedavg_with_error_feedback_at_both_ends() -> None:
    server = ServerSgd(0.25)
    squeezed = quadratic.last(DoubleSqueeze(STEP, server, SIGN, SIGN), CLIENTS, 6)
    both = replace(SIGN, feedback=ErrorFeedback())
    by_hand = quadratic.last(FedAvg(STEP, server, both, both, "uniform"), CLIENTS, 6)
    assert torch.equal(squeezed.theta, by_hand.theta)  # a power of two commutes with rounding


def test_bits_of_every_round() -> None:
    for _, _, bits in quadratic.rounds(DoubleSqueeze(STEP, ServerSgd(), SIGN, SIGN), CLIENTS, 3):
        assert bits == {"uplink": N * (D + 32), "downlink": N * (D + 32), "broadcast": D + 32}


def test_without_gradients_all_memories_stay() -> None:
    clients = replace(CLIENTS, centres=torch.zeros(N, D))
    state = quadratic.last(DoubleSqueeze(STEP, ServerSgd(), SIGN, SIGN), clients, 3)
    assert not state.theta.any()
    assert not state.uplink.sender.any()
    assert not state.downlink.sender.any()


def test_a_memory_that_the_user_chose_is_kept() -> None:
    fading = replace(SIGN, feedback=ErrorFeedback(0.5))
    algorithm = DoubleSqueeze(STEP, ServerSgd(), fading, SIGN)
    assert algorithm.uplink.feedback == ErrorFeedback(0.5)
    assert algorithm.downlink.feedback == ErrorFeedback()


def test_errors() -> None:
    randk = Compressor(RandK(0.1))
    with pytest.raises(ValueError, match="^compressor: the algorithm remembers what RandK leaves out"):
        DoubleSqueeze(STEP, ServerSgd(), randk, SIGN)
    with pytest.raises(ValueError, match="^downlink: the algorithm remembers what RandK leaves out"):
        DoubleSqueeze(STEP, ServerSgd(), SIGN, randk)
    with pytest.raises(ValueError, match="algorithm.sends=all must be one of auto, model, step, mean_update"):
        DoubleSqueeze(STEP, ServerSgd(), SIGN, SIGN, sends="all")
