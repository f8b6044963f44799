"""Bits of messages of the size of networks, as sent and as papers count them; the suite has those of small ones."""

import torch

from fedcomp.compressor.rotations.rotation import LARGEST
from fedcomp.compressor.rotations.turboquant_prod import TurboQuantProd
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.looped import looped
from tests.parts import Codec, Drive, Eden, RandK, StochasticSign, TernGrad, TopK

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
]


@looped("codec, layers, bits, paper_bits", BITS)
def test_bits(codec: Codec, layers: tuple[int, ...], bits: int, paper_bits: int) -> None:
    payload = codec.encode(torch.ones(1, sum(layers)), SharedKnowledge(Key(), torch.arange(1), layers), Key())
    assert (payload.bits.tolist(), payload.paper_bits) == ([bits], paper_bits)
