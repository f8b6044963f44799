"""The bidirectional baselines and BiCompFL-GR-CFL against the suite."""

from dataclasses import replace

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.bidirectional.m3 import M3
from fedcomp.algorithm.bidirectional.memsgd import MemSGD
from fedcomp.algorithm.bidirectional.neolithic import Neolithic
from fedcomp.compressor import Compressor
from tests.algorithm.heterogeneity.test_conformance import CASES as HETEROGENEITY
from tests.algorithm.test_conformance import UPDATES
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, normed, suite
from tests.conformance.bits import dense, floats, links, relayed, topk
from tests.parts import (
    DENSE,
    QSGD,
    ErrorFeedback,
    MRCQuantiser,
    MRCSign,
    PermK,
    RandK,
    ServerSgd,
    Sgd,
    Sign,
    TopK,
    spared,
)

SGD, STEP = Sgd(lr=0.1, batch_size=4), ServerSgd()
TOPK = Compressor(TopK(0.2, "index"), ErrorFeedback())
SIGN = Compressor(Sign(), ErrorFeedback())
PLAIN_SIGN = Compressor(Sign(granularity="model"))
PERMK = Compressor(PermK())
CODED = Compressor(MRCSign(block=8, value=0.05))
M3_EF21 = M3(SGD, STEP, Compressor(Sign()), Compressor(QSGD()), differences="ef21", uplink_entries="compressor")
SIGN_BITS = links(lambda dim, stats, layers: dim + 32 + 32 * stats, floats)
SIGN_BESIDE = links(lambda dim, stats, layers: dim - 8 + 32 + 32 * (8 + stats), floats)
"""Scale and shift of 4 channels dense beside the signs of the others."""
SIGN_BOTH_WAYS = links(lambda dim, stats, layers: dim + 32 + 32 * stats, to_all=True)
RELAYED = relayed(lambda dim: 8 * -(-dim // 8))
TWO_SIGNS_BOTH_WAYS = links(lambda dim, stats, layers: 2 * (dim + 32), to_all=True)

CASES = [
    AlgorithmCase("bicompfl_cfl", BiCompFLCFL(SGD, STEP, CODED), RELAYED),
    normed("bicompfl_cfl-memory", BiCompFLCFL(SGD, STEP, replace(CODED, feedback=ErrorFeedback()), "xor")),
    normed("bicompfl_cfl-ef21", BiCompFLCFL(SGD, STEP, Compressor(TopK(0.2, "rice")), weights="samples", ef21=True)),
    AlgorithmCase("bicompfl_cfl-quantiser", BiCompFLCFL(SGD, STEP, Compressor(MRCQuantiser(block=8, prior="mean")))),
    normed("doublesqueeze", DoubleSqueeze(SGD, STEP, PLAIN_SIGN, PLAIN_SIGN), SIGN_BOTH_WAYS),
    AlgorithmCase("doublesqueeze-topk", DoubleSqueeze(SGD, ServerSgd(0.5, 0.3), TOPK, TOPK)),
    normed("memsgd", MemSGD(SGD, STEP, PLAIN_SIGN, DENSE), SIGN_BITS),
    AlgorithmCase("memsgd-full", MemSGD(SGD, STEP, TOPK, DENSE, sends="mean_update"), topk, participation=world.FULL),
    AlgorithmCase("neolithic", Neolithic(SGD, STEP, PLAIN_SIGN, PLAIN_SIGN), TWO_SIGNS_BOTH_WAYS),
    normed("neolithic-topk", Neolithic(SGD, STEP, TOPK, SIGN, passes=3)),
    normed("cser", CSER(SGD, STEP, PLAIN_SIGN, DENSE), SIGN_BITS),
    AlgorithmCase("cser-resets", CSER(SGD, STEP, PLAIN_SIGN, SIGN, 2)),
    AlgorithmCase("liec", LIEC(SGD, STEP, PLAIN_SIGN, PLAIN_SIGN), SIGN_BOTH_WAYS),
    normed("liec-average", LIEC(SGD, STEP, PLAIN_SIGN, SIGN, 3)),
    AlgorithmCase("liec-fused", LIEC(SGD, STEP, PLAIN_SIGN, TOPK, 2, True)),
    normed("cser-beside", CSER(SGD, STEP, spared(PLAIN_SIGN), DENSE), SIGN_BESIDE),
    normed("liec-beside", LIEC(SGD, STEP, spared(PLAIN_SIGN), spared(PLAIN_SIGN), 3)),
    normed("m3-beside", M3(SGD, STEP, spared(Compressor(TopK())), spared(PERMK), p_down=0.3)),
    normed("m3", M3(SGD, STEP, Compressor(TopK()), PERMK, p_down=0.3)),
    AlgorithmCase("m3-whole", M3(SGD, STEP, DENSE, PERMK, p_down=1, p_up=1, uplink_entries="compressor"), dense),
    AlgorithmCase("m3-parts", M3(SGD, STEP, Compressor(RandK()), PERMK, p_down=0, p_up=0)),
    AlgorithmCase("m3-ef21", M3_EF21),
]

test_algorithm = suite(CASES, [*UPDATES, *HETEROGENEITY])
