"""Mem-SGD: nothing is lost on the way up, the way down is dense; lossless it is FedAvg; exact bits."""

from __future__ import annotations

import pytest
import torch

from fedcomp.algorithm.bidirectional.memsgd import MemSGD
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.server.sgd import Sgd as ServerSgd
from tests.algorithm import quadratic
from tests.algorithm.quadratic import STEP, D, N, Quadratics
from tests.looped import looped

CLIENTS, ETA = Quadratics.of(), 0.3
DENSE, SIGN = Compressor(Dense()), Compressor(Sign(granularity="model"))


@looped("up", [SIGN, Compressor(TopK(0.1)), Compressor(RandK(0.1, scale="none"))])
def test_what_was_sent_and_what_is_remembered_is_what_was_meant(up) -> None:
    """Client by client it is the memory; of the model, x - eta mean e_i (g = -u) moves by eta mean u_i."""
    for before, after, _ in quadratic.rounds(MemSGD(STEP, ServerSgd(ETA), up, DENSE), CLIENTS, 8):
        change = CLIENTS.change(before.theta)
        sent = change + before.uplink.sender - after.uplink.sender
        assert torch.allclose(after.theta - before.theta, ETA * sent.mean(0), atol=1e-6)
        assert not torch.allclose(sent, change, atol=1e-2)
        assert not after.downlink.sender.numel()


def test_lossless_it_is_fedavg() -> None:
    mem = quadratic.last(MemSGD(STEP, ServerSgd(ETA), DENSE, DENSE), CLIENTS, 6)
    plain = quadratic.last(FedAvg(STEP, ServerSgd(ETA), DENSE, DENSE, "uniform"), CLIENTS, 6)
    assert torch.equal(mem.theta, plain.theta)


@looped("sends", ["auto", "mean_update", "step"])
def test_bits_of_every_round(sends: str) -> None:
    for _, _, bits in quadratic.rounds(MemSGD(STEP, ServerSgd(), SIGN, DENSE, sends=sends), CLIENTS, 3):
        assert bits == {"uplink": N * (D + 32), "downlink": N * 32 * D, "broadcast": 32 * D}


def test_errors() -> None:
    with pytest.raises(ValueError, match="^compressor: the algorithm remembers what RandK leaves out"):
        MemSGD(STEP, ServerSgd(), Compressor(RandK(0.1)), DENSE)
