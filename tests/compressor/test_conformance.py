"""Every codec against the suite. A new codec adds one line to CASES."""

from __future__ import annotations

import pytest

from fedcomp.check import codec, messages
from fedcomp.check.codec import CodecCase
from fedcomp.check.failed import Failed
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.fast_compressed_communication import FastCompressedCommunication
from fedcomp.compressor.masked_noise import MaskedNoise
from fedcomp.compressor.mrc.mrc_quantiser import MRCQuantiser
from fedcomp.compressor.mrc.mrc_sign import MRCSign
from fedcomp.compressor.projections.count_sketch import CountSketch
from fedcomp.compressor.projections.projection import Projection
from fedcomp.compressor.projections.rand_proj import RandProj
from fedcomp.compressor.quantisers.fp4 import FP4
from fedcomp.compressor.quantisers.qsgd import QSGD
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.compressor.quantisers.stochastic_sign import StochasticSign
from fedcomp.compressor.quantisers.terngrad import TernGrad
from fedcomp.compressor.rotations.drive import Drive
from fedcomp.compressor.rotations.eden import Eden
from fedcomp.compressor.rotations.quic_fl.codec import QuicFL
from fedcomp.compressor.rotations.turboquant_prod import TurboQuantProd
from fedcomp.compressor.sparsifiers.chunk_topk import ChunkTopK
from fedcomp.compressor.sparsifiers.induced import Induced
from fedcomp.compressor.sparsifiers.permk import PermK
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.random_mask import RandomMask
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.compressor.sparsifiers.wangni import Wangni

CASES = [
    CodecCase("dense", Dense(), lambda layers: 32 * sum(layers), lossless=True),
    CodecCase("dense-fp16", Dense("float16"), lambda layers: 16 * sum(layers)),
    CodecCase("dense-bf16", Dense("bfloat16"), lambda layers: 16 * sum(layers)),
    CodecCase("sign", Sign(), lambda layers: sum(layers) + 32 * len(layers)),
    CodecCase("sign-model", Sign(granularity="model"), lambda layers: sum(layers) + 32),
    CodecCase("sign-fixed", Sign("fixed", 0.5), sum, keeps_zero=False),
    CodecCase(
        "repeated-sign", FastCompressedCommunication(Sign(), 3), lambda layers: 3 * (sum(layers) + 32 * len(layers))
    ),
    CodecCase("repeated-randk", FastCompressedCommunication(RandK(0.2)), lambda layers: 2 * (32 * _kept(layers) + 64)),
    CodecCase("repeated-topk", FastCompressedCommunication(TopK(0.2, "rice")), None),
    CodecCase("topk-index", TopK(0.2, "index"), lambda layers: _kept(layers) * (32 + (sum(layers) - 1).bit_length())),
    CodecCase("topk-bitmap", TopK(0.2, "bitmap"), lambda layers: 32 * _kept(layers) + sum(layers)),
    CodecCase("topk-rice", TopK(0.2, "rice"), None),
    CodecCase("topk-auto", TopK(0.2), None),
    CodecCase("chunk_topk", ChunkTopK(0.2, 16), None),
    CodecCase("chunk_topk-float", ChunkTopK(0.3, 7, "float", "index"), None),
    CodecCase("randk", RandK(0.2), lambda layers: 32 * _kept(layers) + 64),
    CodecCase("randk-derived", RandK(0.2, seed_cost="derived"), lambda layers: 32 * _kept(layers)),
    CodecCase("randk-unscaled", RandK(0.2, scale="none", seed_cost="derived"), lambda layers: 32 * _kept(layers)),
    CodecCase(
        "randk-index",
        RandK(0.2, places="index"),
        lambda layers: _kept(layers) * (32 + (sum(layers) - 1).bit_length()),
    ),
    CodecCase("randk-rice", RandK(0.2, places="rice"), None),
    CodecCase("random_mask", RandomMask(0.3), None),
    CodecCase("random_mask-unscaled", RandomMask(0.3, scale="none", seed_cost="derived"), None),
    CodecCase("permk", PermK(), None, draws=800, joint=True),
    CodecCase("wangni", Wangni(0.2), None),
    CodecCase("wangni-sign", Wangni(0.2, values="sign"), None),
    CodecCase("induced", Induced(0.2, positions="index"), None),
    CodecCase("induced-restricted", Induced(0.2, restricted=True, seed_cost="derived"), None),
    CodecCase("projection", Projection(), lambda layers: 96, draws=1000),
    CodecCase("projection-gaussian", Projection("per_agent", "gaussian", 3), lambda layers: 160, draws=500),
    CodecCase("projection-sphere", Projection("shared", "sphere", 2), lambda layers: 64, draws=500, joint=True),
    CodecCase("projection-shared", Projection("shared"), lambda layers: 32, draws=1000, joint=True),
    CodecCase(
        "projection-subspace", Projection(directions="orthonormal", seed_cost="derived"), lambda layers: 32, draws=500
    ),
    CodecCase("rand_proj", RandProj(0.2), lambda layers: 32 * _kept(layers) + 64),
    CodecCase("rand_proj-blocks", RandProj(0.4, block=8, seed_cost="derived"), None),
    CodecCase("count_sketch", CountSketch(3, 8), lambda layers: 32 * 24, draws=1500, joint=True),
    CodecCase("count_sketch-k", CountSketch(5, 8, k=1), lambda layers: 32 * 40),
    CodecCase("stochastic-sign-max", StochasticSign(), lambda layers: sum(layers) + 32 * len(layers), draws=500),
    CodecCase(
        "stochastic-sign-l2", StochasticSign("l2", granularity="model"), lambda layers: sum(layers) + 32, draws=500
    ),
    CodecCase(
        "stochastic-sign-mean",
        StochasticSign("mean_abs", factor=2.0),
        lambda layers: sum(layers) + 32 * len(layers),
        draws=500,
    ),
    CodecCase("stochastic-sign-fixed", StochasticSign("fixed", 0.5), sum, keeps_zero=False, draws=500),
    CodecCase("masked-noise", MaskedNoise(), lambda layers: sum(layers) + 64),
    CodecCase(
        "masked-noise-signed", MaskedNoise("signed", "gaussian", 2.0, seed_cost="derived"), sum, keeps_zero=False
    ),
    CodecCase(
        "masked-noise-bernoulli",
        MaskedNoise("signed", "bernoulli", 0.5, False),
        lambda layers: sum(layers) + 64,
        keeps_zero=False,
    ),
    CodecCase("mrc_sign", MRCSign(block=8), lambda layers: 8 * -(-sum(layers) // 8), keeps_zero=False),
    CodecCase(
        "mrc_sign-scaled",
        MRCSign(block=16, num_candidates=100, repetitions=3, candidates="per_client", K="capacity", scale="mean_abs"),
        lambda layers: 3 * 7 * -(-sum(layers) // 16) + 32,
    ),
    CodecCase("mrc_quantiser", MRCQuantiser(levels=4, block=8), None),
    CodecCase("mrc_quantiser-mean", MRCQuantiser(levels=64, prior="mean", bits=16), None),
    CodecCase("terngrad", TernGrad(), lambda layers: 8 * -(-sum(layers) // 5) + 32 * len(layers), draws=1500),
    CodecCase("terngrad-clip", TernGrad(1.0, "model"), lambda layers: 8 * -(-sum(layers) // 5) + 32, draws=1500),
    CodecCase("fp4", FP4(), lambda layers: 4 * sum(layers) + 32 * len(layers)),
    CodecCase("fp4-stochastic", FP4("stochastic", "model"), lambda layers: 4 * sum(layers) + 32, draws=1500),
    CodecCase("qsgd-auto", QSGD(), None, draws=1500),
    CodecCase("qsgd-fixed", QSGD(7, coding="fixed"), lambda layers: 4 * sum(layers) + 32 * len(layers), draws=1500),
    CodecCase(
        "qsgd-packed", QSGD(1, coding="packed"), lambda layers: 8 * -(-sum(layers) // 5) + 32 * len(layers), draws=1500
    ),
    CodecCase("qsgd-elias", QSGD(3, "model", "elias"), None, draws=1500),
    CodecCase("qsgd-wide", QSGD(300, coding="fixed"), lambda layers: 10 * sum(layers) + 32 * len(layers), draws=1500),
    # One Hadamard rotation is not quite uniformly random: over 40,000 draws of this vector of 47 entries the mean is
    # off by 0.037 max |x| for drive and half a bit of eden, 0.024 at 1.5 bits, 0.013 at 2, 0.005 with two rotations.
    CodecCase("drive", Drive(), lambda layers: sum(layers) + 96),
    CodecCase("drive-unbiased", Drive("unbiased"), lambda layers: sum(layers) + 96, bias=0.05),
    CodecCase("drive-rotated-twice", Drive("unbiased", rotations=2), lambda layers: sum(layers) + 96, bias=0.01),
    CodecCase("eden-min-mse", Eden(3, "min_mse", seed_cost="derived"), lambda layers: 3 * sum(layers) + 32),
    CodecCase("eden-2", Eden(2), lambda layers: 2 * sum(layers) + 96, bias=0.02),
    CodecCase("eden-1.5", Eden(1.5), lambda layers: sum(layers) + round(0.5 * sum(layers)) + 96, bias=0.03),
    CodecCase("turboquant", Eden(3, "norm"), lambda layers: 3 * sum(layers) + 96),
    CodecCase("turboquant-prod-1", TurboQuantProd(1), lambda layers: sum(layers) + 96, bias=0.01),
    CodecCase("turboquant-prod-3", TurboQuantProd(3), lambda layers: 3 * sum(layers) + 128, bias=0.005),
    CodecCase(
        "turboquant-prod-gaussian",
        TurboQuantProd(2, "gaussian", seed_cost="derived"),
        lambda layers: 2 * sum(layers) + 64,
    ),
    CodecCase("quic_fl", QuicFL(), None),
    CodecCase("quic_fl-3", QuicFL(3, 2, "derived"), None),
    CodecCase("eden-0.5", Eden(0.5), lambda layers: max(1, round(0.5 * sum(layers))) + 96, bias=0.05),
]


def _kept(layers: tuple[int, ...]) -> int:
    return max(1, round(0.2 * sum(layers)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_codec(case: CodecCase) -> None:
    for check in (*codec.CHECKS, *messages.CHECKS):
        try:
            check(case)
        except Failed as failed:
            raise Failed(f"{check.__name__}: {failed}") from failed


@pytest.mark.thorough
def test_another_process_decodes_the_same_from_the_bytes() -> None:
    messages.check_in_other_process(CASES)
