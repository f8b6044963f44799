"""BiCompFL-GR-CFL with EF21: what everybody keeps, where it converges, and which compressors it refuses."""

import pytest
import torch

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from tests.algorithm import quadratic
from tests.algorithm.quadratic import STEP, D, N, Quadratics
from tests.parts import Compressor, Dense, ErrorFeedback, MRCSign, RandK, ServerSgd, Spatial, TopK
from tests.refused import refused

CLIENTS = Quadratics.of()
TOPK = Compressor(TopK(0.1, "index"))


def algorithm(uplink: Compressor, ef21: bool = True) -> BiCompFLCFL:
    return BiCompFLCFL(STEP, ServerSgd(0.1), uplink, ef21=ef21)


def test_of_lossless_messages_it_is_plain_averaging() -> None:
    """h_i is u_i after every round, whatever it was before."""
    plain = quadratic.rounds(algorithm(Compressor(Dense()), ef21=False), CLIENTS, 5)
    corrected = quadratic.rounds(algorithm(Compressor(Dense())), CLIENTS, 5)
    for (_, one, _), (before, other, _) in zip(plain, corrected, strict=True):
        assert torch.allclose(one.theta, other.theta, atol=1e-5)
        assert torch.allclose(other.base, CLIENTS.change(before.theta), atol=1e-5)
        assert one.base.shape == (N, 0)


def test_the_model_moves_by_the_mean_of_the_estimates_and_messages_are_the_codecs() -> None:
    each = D // 10 * (32 + 7)
    for before, after, bits in quadratic.rounds(algorithm(TOPK), CLIENTS, 4):
        assert torch.allclose(after.theta, before.theta + 0.1 * after.base.mean(0), atol=1e-6)
        corrections = after.base - before.base
        assert ((corrections != 0).sum(1) <= D // 10).all()
        left, meant = CLIENTS.change(before.theta) - after.base, CLIENTS.change(before.theta) - before.base
        assert (left.square().sum(1) < meant.square().sum(1)).all()
        assert bits == {"uplink": N * each, "downlink": N * (N - 1) * each, "broadcast": N * each}


@pytest.mark.thorough
def test_it_converges_where_plain_compression_does_not() -> None:
    """Clients' updates do not vanish at the common minimum: the largest of each do not cancel out, their sums do."""
    start = CLIENTS.excess(torch.zeros(D))
    plain = quadratic.last(algorithm(TOPK, ef21=False), CLIENTS, 1000)
    corrected = quadratic.last(algorithm(TOPK), CLIENTS, 1000)
    assert CLIENTS.excess(corrected.theta) < 1e-6 * start
    assert CLIENTS.excess(plain.theta) > 1e-3 * start


test_wrong_input = refused(
    [
        ({"uplink": Compressor(TopK(), ErrorFeedback())}, "algorithm.ef21 is a memory of its own: leave"),
        ({"uplink": Compressor(RandK(0.1), estimator=Spatial("max"))}, "algorithm.ef21 is a memory of its own"),
        ({"uplink": Compressor(RandK(0.1))}, "^compressor: the algorithm remembers what RandK leaves out"),
        ({"uplink": Compressor(MRCSign(scale="mean_abs"))}, "compressor.scale=mean_abs makes no sense with an error"),
    ],
    lambda uplink: quadratic.init(algorithm(uplink), CLIENTS),
)
