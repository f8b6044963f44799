"""Scale and shift of BatchNorm in methods that correct what compression left out: exact, and counted."""

import pytest
import torch

from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.bidirectional.m3 import M3
from fedcomp.core.parameter_layout import ParameterSubset, is_normalisation
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.parts import Compressor, Dense, PermK, ServerSgd, Sgd, Sign, TopK

SGD, STEP = Sgd(lr=0.1, batch_size=4), ServerSgd()
PART = ParameterSubset.of(world.BATCH_NORM_TENSORS, is_normalisation)
SIGN, SPARED = Compressor(Sign(granularity="model")), world.spared(Compressor(Sign(granularity="model")))
TOPK, PERMK = Compressor(TopK()), Compressor(PermK())


def _simulation(algorithm):
    return world.simulation(algorithm, world.with_batch_norm, world.FULL)


def _uplink(algorithm) -> int:
    """Bits up in the second round."""
    sim, ledger = _simulation(algorithm), Ledger()
    state = world.run(sim, last=1)
    sim.round(1, state, ledger)
    return ledger.counters()["uplink"]


def test_the_parameters_are_those_of_the_world() -> None:
    tensors = _simulation(CSER(SGD, STEP, SIGN, SIGN)).model.tensors
    assert [(tensor.size, is_normalisation(tensor)) for tensor in tensors] == [
        (tensor.size, is_normalisation(tensor)) for tensor in world.BATCH_NORM_TENSORS
    ]


@pytest.mark.parametrize("uplink", [SPARED, SIGN], ids=["spared", "compressed"])
def test_cser_leaves_nothing_of_them_out(uplink) -> None:
    state = world.run(_simulation(CSER(SGD, STEP, uplink, Compressor(Dense()), period=2)))
    exact = uplink is SPARED
    assert bool(PART.take(state.error).any()) != exact
    assert torch.equal(PART.take(state.theta), PART.take(state.theta[:1]).expand(world.NUM_CLIENTS, -1)) == exact
    assert PART.rest.take(state.error).any()


@pytest.mark.parametrize("fused", [False, True])
def test_liec_remembers_nothing_of_them_and_averages_the_rest(fused: bool) -> None:
    sim = _simulation(LIEC(SGD, STEP, SPARED, SPARED, 3, fused))
    state = world.run(sim, last=2)
    assert state.downlink.sender.shape == (1, sim.model.dim - PART.size)
    assert state.downlink.sender.any()
    assert torch.equal(PART.take(state.theta), PART.take(state.theta[:1]).expand(world.NUM_CLIENTS, -1))
    state, _ = sim.round(2, state, Ledger())
    assert torch.equal(state.theta, state.theta[:1].expand(world.NUM_CLIENTS, -1))
    assert not state.downlink.sender.any()


def test_m3_sends_them_whole_both_ways() -> None:
    algorithm = M3(SGD, STEP, world.spared(TOPK), world.spared(PERMK), p_down=0, p_up=0)
    sim = _simulation(algorithm)
    state = world.run(sim, last=3)
    after, _ = sim.round(3, state, Ledger())
    assert torch.allclose(PART.take(after.models), PART.take(state.theta).expand(world.NUM_CLIENTS, -1), atol=1e-6)
    assert not torch.allclose(PART.rest.take(after.models), PART.rest.take(state.theta), atol=1e-6)
    assert torch.allclose(PART.take(after.update), PART.take(after.base).mean(0), atol=1e-6)


def test_uncompressed_normalisation_parameters_are_counted() -> None:
    num, dim, sent = world.NUM_CLIENTS, sum(tensor.size for tensor in world.BATCH_NORM_TENSORS), 32 * PART.size
    stats = 32 * 2 * 4
    down = Compressor(Dense())
    assert _uplink(CSER(SGD, STEP, SIGN, down)) == num * (dim + 32 + stats)
    assert _uplink(CSER(SGD, STEP, SPARED, down)) == num * (dim - PART.size + 32 + sent + stats)
    assert _uplink(LIEC(SGD, STEP, SPARED, SPARED)) == num * (dim - PART.size + 32 + sent + stats)
    kept = (dim - PART.size) // num
    places = kept * (dim - PART.size - 1).bit_length()
    topk = world.spared(Compressor(TopK(positions="index")))
    assert _uplink(M3(SGD, STEP, topk, world.spared(PERMK), p_up=0)) == num * (32 * kept + places + sent + stats)
