"""NEOLITHIC: one message is DoubleSqueeze bit for bit, many are FedAvg; nothing is lost at either end; exact bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedcomp.algorithm.bidirectional.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.bidirectional.neolithic import Neolithic
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.fast_compressed_communication import FastCompressedCommunication
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.server.sgd import Sgd as ServerSgd
from tests.algorithm import quadratic
from tests.algorithm.quadratic import STEP, D, N, Quadratics
from tests.looped import looped

CLIENTS, ETA = Quadratics.of(), 0.3
DENSE, SIGN, TOPK = Compressor(Dense()), Compressor(Sign(granularity="model")), Compressor(TopK(0.1))
RANDK = Compressor(RandK(0.2, scale="none"))


@looped("up, down", [(SIGN, SIGN), (TOPK, SIGN), (RANDK, RANDK)])
def test_one_message_is_doublesqueeze(up, down) -> None:
    once = quadratic.last(Neolithic(STEP, ServerSgd(ETA), up, down, passes=1), CLIENTS, 6)
    squeezed = quadratic.last(DoubleSqueeze(STEP, ServerSgd(ETA), up, down), CLIENTS, 6)
    assert torch.equal(once.theta, squeezed.theta)
    assert torch.equal(once.uplink.sender, squeezed.uplink.sender)


@pytest.mark.thorough
def test_many_messages_are_fedavg() -> None:
    """Top 10 % ten times is everything; scaled signs shrink what is left by a constant factor each time."""
    plain = quadratic.last(FedAvg(STEP, ServerSgd(ETA), DENSE, DENSE, "uniform"), CLIENTS, 6)
    for compressor, repeats, bound in ((TOPK, 11, 1e-6), (SIGN, 300, 1e-3)):
        many = quadratic.last(Neolithic(STEP, ServerSgd(ETA), compressor, compressor, passes=repeats), CLIENTS, 6)
        assert torch.allclose(many.theta, plain.theta, atol=bound)
    two = quadratic.last(Neolithic(STEP, ServerSgd(ETA), SIGN, SIGN), CLIENTS, 6)
    assert not torch.allclose(two.theta, plain.theta, atol=1e-2)


@pytest.mark.parametrize(("up", "down"), [(SIGN, SIGN), (TOPK, RANDK)])
def test_what_was_sent_and_what_is_remembered_is_what_was_meant(up, down) -> None:
    for before, after, _ in quadratic.rounds(Neolithic(STEP, ServerSgd(ETA), up, down), CLIENTS, 8):
        meant = [
            state.theta + ETA * (state.uplink.sender.mean(0) + state.downlink.sender[0]) for state in (before, after)
        ]
        assert torch.allclose(meant[1] - meant[0], ETA * CLIENTS.change(before.theta).mean(0), atol=1e-6)


@looped("repeats", [1, 2, 5])
def test_bits_of_every_round(repeats: int) -> None:
    each = repeats * (D + 32)
    for _, _, bits in quadratic.rounds(Neolithic(STEP, ServerSgd(), SIGN, SIGN, passes=repeats), CLIENTS, 3):
        assert bits == {"uplink": N * each, "downlink": N * each, "broadcast": each}


def test_a_dense_message_is_not_sent_again() -> None:
    for _, after, bits in quadratic.rounds(Neolithic(STEP, ServerSgd(), DENSE, SIGN), CLIENTS, 2):
        assert bits == {"uplink": N * 32 * D, "downlink": N * 2 * (D + 32), "broadcast": 2 * (D + 32)}
        assert not after.uplink.sender.any()


def test_errors() -> None:
    with pytest.raises(ValueError, match="algorithm.passes=0 must be a whole number, 1 or more"):
        Neolithic(STEP, ServerSgd(), SIGN, SIGN, passes=0)
    with pytest.raises(ValueError, match="^downlink: the algorithm remembers what RandK leaves out"):
        Neolithic(STEP, ServerSgd(), SIGN, Compressor(RandK(0.1)))


def test_a_copy_with_another_option_repeats_its_messages_as_often() -> None:
    algorithm = Neolithic(STEP, ServerSgd(), SIGN, SIGN, passes=3)
    copy = replace(algorithm, weights="samples")
    assert (copy.uplink, copy.downlink) == (algorithm.uplink, algorithm.downlink)
    assert isinstance(copy.uplink.codec, FastCompressedCommunication)
    assert copy.uplink.codec.codec == SIGN.codec
