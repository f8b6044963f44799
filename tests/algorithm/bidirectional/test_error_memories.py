"""Mem-SGD, DoubleSqueeze, NEOLITHIC, CSER, LIEC, EF21: nothing is lost at either end; lossless they are FedAvg."""

from dataclasses import replace
from typing import Any

import torch

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.bidirectional.memsgd import MemSGD
from fedcomp.algorithm.bidirectional.neolithic import Neolithic
from fedcomp.algorithm.contract import Algorithm
from fedcomp.compressor.fast_compressed_communication import FastCompressedCommunication
from tests.algorithm.heterogeneous import STEP, D, N, Run, problem
from tests.looped import looped
from tests.parts import DENSE, QSGD, Compressor, ErrorFeedback, FedAvg, MRCSign, RandK, ServerSgd, Sign, Spatial, TopK
from tests.refused import refused

CLIENTS, ETA = problem(), 0.3
SERVER = ServerSgd(ETA)
SIGN, TOPK = Compressor(Sign(granularity="model")), Compressor(TopK(0.1))
RANDK, LEVELS = Compressor(RandK(0.1, scale="none")), Compressor(QSGD(1))
ALL_SENT, REMEMBERED = Compressor(TopK(1.0)), replace(SIGN, feedback=ErrorFeedback())
UNBIASED = Compressor(RandK(0.1))

LOSSY: list[Algorithm] = [
    *(MemSGD(STEP, SERVER, up, DENSE) for up in (SIGN, TOPK, RANDK)),
    *(DoubleSqueeze(STEP, SERVER, up, SIGN) for up in (SIGN, TOPK)),
    DoubleSqueeze(STEP, SERVER, SIGN, Compressor(Sign("fixed", 0.3))),
    *(Neolithic(STEP, SERVER, *both) for both in ((SIGN, SIGN), (TOPK, RANDK))),
    *(CSER(STEP, SERVER, up, DENSE, period) for up in (SIGN, TOPK, RANDK) for period in (1, 3, 100)),
    CSER(STEP, SERVER, SIGN, REMEMBERED, 3),
    *(LIEC(STEP, SERVER, up, SIGN, period) for up in (SIGN, TOPK, LEVELS) for period in (1, 3, 100)),
    *(LIEC(STEP, SERVER, up, SIGN, period, True) for up in (SIGN, TOPK, LEVELS) for period in (1, 3, 100)),
]
LOSSLESS: list[Algorithm] = [
    MemSGD(STEP, SERVER, DENSE, DENSE),
    DoubleSqueeze(STEP, SERVER, DENSE, DENSE),
    *(CSER(STEP, SERVER, up, DENSE, 2) for up in (DENSE, ALL_SENT)),
    *(LIEC(STEP, SERVER, both, both, 4) for both in (DENSE, ALL_SENT)),
    *(BiCompFLCFL(STEP, SERVER, DENSE, ef21=ef21) for ef21 in (False, True)),
]


def _memories(state: Any) -> torch.Tensor:
    """[D] mean e_i + E, of those that the method has."""
    memories = [getattr(state, name).sender for name in ("uplink", "downlink") if hasattr(state, name)]
    return sum((memory.mean(0) for memory in memories if memory.numel()), torch.zeros(D))


def _model(state: Any) -> torch.Tensor:
    """[D] x, or mean x_i."""
    return state.theta.reshape(-1, D).mean(0)


@looped("algorithm", LOSSY)
def test_nothing_is_lost(algorithm: Algorithm) -> None:
    """Model - eta memories (g = -u) moves by eta mean u_i in every round: memories are in the units of u."""
    apart = 0.0
    for before, after, _ in Run(algorithm, CLIENTS).rounds(8):
        change = ETA * CLIENTS.changes(before.theta).mean(0)
        meant = [_model(state) + ETA * _memories(state) for state in (before, after)]
        assert torch.allclose(meant[1] - meant[0], change, atol=1e-5)
        models = after.theta.reshape(-1, D)
        apart = max(apart, float((_model(after) - _model(before) - change).norm() + (models - models[:1]).norm()))
    assert apart > 0.1 or isinstance(algorithm, LIEC)  # something was left out; LIEC with period 1 sends all


@looped("algorithm", LOSSLESS)
def test_lossless_it_is_fedavg(algorithm: Algorithm) -> None:
    plain = Run(FedAvg(STEP, SERVER, DENSE, DENSE, "uniform"), CLIENTS).last(6)
    state = Run(algorithm, CLIENTS).last(6)
    assert torch.allclose(state.theta, plain.theta.expand(state.theta.shape), atol=1e-6)
    assert not _memories(state).any()
    assert not (isinstance(algorithm, CSER) and state.error.any())


@looped("algorithm", [CSER(STEP, SERVER, SIGN, DENSE), LIEC(STEP, SERVER, SIGN, SIGN)])
def test_the_average_model_is_deployed(algorithm: Algorithm) -> None:
    state = Run(algorithm, CLIENTS).last(3)
    assert torch.equal(algorithm.evaluation_models(state, None)["test"].theta[0], _model(state))  # type: ignore[arg-type]


def test_doublesqueeze_is_fedavg_with_error_feedback_at_both_ends() -> None:
    squeezed = Run(DoubleSqueeze(STEP, ServerSgd(0.25), SIGN, SIGN), CLIENTS).last(6)
    by_hand = Run(FedAvg(STEP, ServerSgd(0.25), REMEMBERED, REMEMBERED, "uniform"), CLIENTS).last(6)
    assert torch.equal(squeezed.theta, by_hand.theta)  # a power of two commutes with rounding
    fading = DoubleSqueeze(STEP, SERVER, replace(SIGN, feedback=ErrorFeedback(0.5)), SIGN)
    assert (fading.uplink.feedback, fading.downlink.feedback) == (ErrorFeedback(0.5), ErrorFeedback())


def test_a_copy_of_neolithic_with_another_option_repeats_its_messages_as_often() -> None:
    copy = replace(Neolithic(STEP, SERVER, SIGN, SIGN, passes=3), weights="samples")
    assert copy.uplink.codec == copy.downlink.codec == FastCompressedCommunication(SIGN.codec, 3)


ONE = D + 32
"""Bits of a scaled sign of the whole model."""
BITS = [
    *((MemSGD(STEP, SERVER, SIGN, DENSE, sends=sends), ONE, 32 * D) for sends in ("mean_update", "step")),
    *((Neolithic(STEP, SERVER, SIGN, SIGN, passes=passes), passes * ONE, passes * ONE) for passes in (1, 5)),
    (Neolithic(STEP, SERVER, DENSE, SIGN), 32 * D, 2 * ONE),  # a dense message is not sent again
]


@looped("algorithm, up, down", BITS)
def test_bits_of_every_round(algorithm: Algorithm, up: int, down: int) -> None:
    for _, _, bits in Run(algorithm, CLIENTS).rounds(2):
        assert bits == {"uplink": N * up, "downlink": N * down, "broadcast": down}


test_wrong_input = refused(
    [
        (lambda: MemSGD(STEP, SERVER, UNBIASED, DENSE), "^compressor: the algorithm remembers what RandK leaves out"),
        (lambda: DoubleSqueeze(STEP, SERVER, UNBIASED, SIGN), "^compressor: the algorithm remembers what RandK leaves"),
        (lambda: Neolithic(STEP, SERVER, SIGN, UNBIASED), "^downlink: the algorithm remembers what RandK leaves out"),
        (
            lambda: DoubleSqueeze(STEP, SERVER, SIGN, SIGN, sends="all"),
            "algorithm.sends=all must be one of auto, model",
        ),
    ]
)


TOPK_INDEX = Compressor(TopK(0.1, "index"))


def _cfl(uplink: Compressor) -> BiCompFLCFL:
    return BiCompFLCFL(STEP, ServerSgd(0.1), uplink, ef21=True)


def test_the_model_moves_by_the_mean_of_the_estimates_and_messages_are_the_codecs() -> None:
    each = D // 10 * (32 + 6)
    for before, after, bits in Run(_cfl(TOPK_INDEX), CLIENTS).rounds(4):
        assert torch.allclose(after.theta, before.theta + 0.1 * after.base.mean(0), atol=1e-6)
        corrections = after.base - before.base
        assert ((corrections != 0).sum(1) <= D // 10).all()
        left, meant = CLIENTS.changes(before.theta) - after.base, CLIENTS.changes(before.theta) - before.base
        assert (left.square().sum(1) < meant.square().sum(1)).all()
        assert bits == {"uplink": N * each, "downlink": N * (N - 1) * each, "broadcast": N * each}


test_ef21_refuses_other_memories = refused(
    [
        ({"uplink": Compressor(TopK(), ErrorFeedback())}, "algorithm.ef21 is a memory of its own: leave"),
        ({"uplink": Compressor(RandK(0.1), estimator=Spatial("max"))}, "algorithm.ef21 is a memory of its own"),
        ({"uplink": Compressor(RandK(0.1))}, "^compressor: the algorithm remembers what RandK leaves out"),
        ({"uplink": Compressor(MRCSign(scale="mean_abs"))}, "compressor.scale=mean_abs makes no sense with an error"),
    ],
    lambda uplink: Run(_cfl(uplink), CLIENTS).init(),
)
