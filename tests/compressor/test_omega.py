"""Closed forms: bits of messages of the size of networks, as sent and as papers count them; the bound omega."""

import pytest
import torch
from torch import Tensor

from fedcomp.compressor import Codec, Compressor
from fedcomp.compressor.masked_noise import MaskedNoise
from fedcomp.compressor.mrc.mrc_quantiser import MRCQuantiser
from fedcomp.compressor.projections.rand_proj import RandProj
from fedcomp.compressor.rotations.rotation import LARGEST
from fedcomp.compressor.rotations.turboquant_prod import TurboQuantProd
from fedcomp.compressor.sparsifiers.wangni import Wangni
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.looped import looped
from tests.parts import (
    BATCH_NORM_TENSORS,
    FP4,
    QSGD,
    Dense,
    Drive,
    Eden,
    Induced,
    PermK,
    RandK,
    RandomMask,
    Sign,
    StochasticSign,
    TernGrad,
    TopK,
    spared,
)

LAYERS = (36, 4)
SENDERS, DRAWS = 4, 500


def _spread() -> Tensor:
    """Equal entries: the worst case of signs of scale max is another one."""
    return torch.ones(40)


def _one_large() -> Tensor:
    """One entry beside small ones, in the ratio that TernGrad makes the most of in a block of 36: sqrt(m) + 1 to 1."""
    return torch.cat((torch.tensor([7.0]), torch.ones(35), torch.zeros(4)))


def _alone() -> Tensor:
    return torch.cat((torch.tensor([3.0]), torch.zeros(39)))


CASES = [
    ("dense", Dense(), 0.0, _spread(), 1.0),
    ("randk", RandK(k=4), 9.0, _one_large(), 1.0),
    ("random_mask", RandomMask(0.2), 4.0, _spread(), 1.0),
    ("permk", PermK(), 3.0, _one_large(), 1.0),
    ("terngrad", TernGrad(), (36**0.5 - 1) / 2, _one_large(), 1.0),
    ("stochastic_sign", StochasticSign(), 35.0, _alone(), 1.0),
    ("stochastic_sign-l2", StochasticSign("l2", granularity="model"), 39.0, _spread(), 1.0),
    ("fp4", FP4("stochastic"), 1 / 8 + 35 / 128**2, _one_large(), 0.0),
    ("qsgd-one", QSGD(1, "model"), 40**0.5, _spread(), 0.8),
    ("qsgd-few", QSGD(2, "model"), 40**0.5 / 2, _spread(), 0.6),
    ("qsgd-many", QSGD(20), 36 / 400, _one_large(), 0.0),
]
"""(name, codec, omega for LAYERS and SENDERS, a vector, the least share of omega that its error reaches)."""


@looped("name, codec, omega, x, reached", CASES)
def test_the_error_is_at_most_omega(name: str, codec: Codec, omega: float, x: Tensor, reached: float) -> None:
    assert codec.omega(LAYERS, SENDERS) == pytest.approx(omega)
    for given, least in ((x, reached), (torch.randn(40, generator=torch.Generator().manual_seed(1)), 0.0)):
        errors = []
        for draw in range(DRAWS // SENDERS):
            common = SharedKnowledge(Key(("omega", draw)), torch.arange(SENDERS), LAYERS)
            rows = given.expand(SENDERS, -1).contiguous()
            payload = codec.encode(rows, common, common.key.fold_in("sender"))
            errors.append((codec.decode(payload, common) - rows).square().sum(1) / given.square().sum())
        all_errors = torch.stack(errors).mean(1)  # PermK's senders depend on each other
        tolerance = 4 * float(all_errors.std()) / len(errors) ** 0.5 + 1e-6
        assert least * omega - tolerance <= float(all_errors.mean()) <= omega + tolerance


def test_none_for_biased_codecs_and_those_without_a_closed_form() -> None:
    for codec in (Sign(), TopK(), RandK(scale="none"), StochasticSign("mean_abs"), Eden(), TernGrad(2.5)):
        assert Compressor(codec).omega(LAYERS, SENDERS) is None, codec


def test_what_is_sent_dense_beside_the_message_does_not_count() -> None:
    beside = spared(Compressor(RandK(k=4)))
    assert beside.omega(tuple(tensor.size for tensor in BATCH_NORM_TENSORS), 3) == (20 + 12 + 3) / 4 - 1


CNN8, CNN4, TWO = 1_181_536, 1_933_258, LARGEST + 5
KEPT = 35_446
"""3 % of CNN8: the papers count 32 bits each, 0.96 a parameter; with their positions of 21 bits it is 1.59."""
BITS = [
    (RandK(), (CNN8,), 32 * KEPT + 64, 32 * KEPT),
    (RandK(seed_cost="derived"), (CNN8,), 32 * KEPT, 32 * KEPT),
    (RandK(places="index"), (CNN8,), (32 + 21) * KEPT, 32 * KEPT),
    (TopK(positions="index"), (CNN8,), (32 + 21) * KEPT, 32 * KEPT),
    (TopK(positions="bitmap"), (CNN8,), 32 * KEPT + CNN8, 32 * KEPT),
    (TernGrad(), (CNN8 - 8, *[1] * 8), 8 * 236_308 + 9 * 32, 1_872_691),
    (Drive(), (CNN4,), CNN4 + 15 * 32 + 64, CNN4),
    (Drive(seed_cost="derived"), (CNN8,), CNN8 + 10 * 32, CNN8),
    (Eden(1.5), (CNN4,), 14 * 196_608 + 147_375 + 15 * 32 + 64, 2_899_887),
    (Eden(0.5), (TWO,), 65_536 + 2 + 2 * 32 + 64, 65_538),
    (Eden(2, "norm"), (TWO,), 2 * TWO + 2 * 32 + 64, 2 * TWO),
    (TurboQuantProd(1), (TWO,), TWO + 2 * 32 + 64, TWO + 32),
    (TurboQuantProd(3, seed_cost="derived"), (TWO,), 3 * TWO + 2 * 64, 3 * TWO + 32),
    (StochasticSign("fixed"), (20, 40), 60, 60),
    (StochasticSign("max"), (20, 40), 60 + 64, 60),
    (FP4(), (20, 40), 4 * 60 + 64, 4 * 60),
    (PermK(), (40,), 32 * 40, 32 * 40),
    (RandProj(k=4), (40,), 4 * 32 + 64, 4 * 32),
    (MaskedNoise(), (40,), 40 + 64, 40),
    (Induced(k=7, positions="index"), (40,), 6 * 32 + 3 * 6 + 64, 6 * 32),
    (Wangni(k=40), (40,), 2 * 6 + 40 * (32 + 6), 40 * 32),  # the number in front of either field
    (Wangni(k=40, values="sign"), (40,), 32 + 4 * 6 + 40 * (32 + 6), 40 * 32),
    (RandomMask(0.5, seed_cost="derived"), (40,), None, 20 * 32),
    (MRCQuantiser(levels=4, block=8, num_candidates=16), (40,), None, 5 * 4),
]


@looped("codec, layers, bits, paper_bits", BITS)
def test_bits(codec: Codec, layers: tuple[int, ...], bits: int | None, paper_bits: int) -> None:
    """Of a vector of ones; None: the draws decide how many are sent."""
    payload = codec.encode(torch.ones(1, sum(layers)), SharedKnowledge(Key(), torch.arange(1), layers), Key())
    assert payload.paper_bits == paper_bits
    assert bits is None or payload.bits.tolist() == [bits]
